package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// profileRun has a relay of its own drain a load, and writes a profile of its
// processor time over some seconds from its start into the directory of
// -profile. Idle seconds at the end do not show in it.
func (b *bench) profileRun(ctx context.Context, name string, l load, broker string, seconds int, flags []string) error {
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return err
	}
	place, err := l.begin(b.dir)
	if err != nil {
		return err
	}
	p, err := b.runRelay(l.dsn, broker, place, append(flags, "--debug")...)
	if err != nil {
		return err
	}
	path := filepath.Join(b.profile, strings.NewReplacer(" ", "-", ",", "", "--", "").Replace(name)+".pprof")
	err = p.profileInto(ctx, path, seconds)
	if stopped := p.stop(); err == nil {
		err = stopped
	}
	b.log.Printf("  profile: go tool pprof -top %s", path)
	return err
}
