//go:build faults

package cli_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// packages is the root filesystem that servers.sh makes without Docker.
const packages = "../../.dev/root"

// TestFaultMySQLEncrypted: the server's log is encrypted on disk. It is sent in
// clear, and only the files' sizes and their first event tell; a relay that
// looks at either wrongly does not follow.
func TestFaultMySQLEncrypted(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(packages); err != nil {
		t.Skip("the keyring's manifest must be beside mysqld's binary, where a Docker image has none: " + err.Error())
	}
	server := newMysqld(t)
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	d := r.start("--partitions", "1")
	l := r.underLoad(1)
	l.grown(d, 60)
	server.terminate()
	server.addKeyring()
	server.start()
	l.grown(d, 60)
	r.exec("FLUSH BINARY LOGS")
	l.grown(d, 60)
	d.stop()
	last := l.end(t)
	if head := mustRead(t, filepath.Join(server.dir, "data", r.lastLog()))[:4]; string(head) != "\xfdbin" { // plain: fe
		t.Errorf("the log's last file begins with %x: it is not encrypted", head)
	}
	r.relay("--partitions", "1")
	r.wantEvents(r.take(0), 1, last)
}

// addKeyring gives the server, which is down, a keyring in a file, and from now
// on an encrypted log. The component is loaded by a manifest beside the
// binary, and has its settings beside its library: so both are copied.
func (m *mysqld) addKeyring() {
	m.t.Helper()
	files := map[string]string{
		"mysqld.my":                  `{"components": "file://component_keyring_file"}`,
		"component_keyring_file.cnf": `{"path": "/srv/data/keyring", "read_only": false}`,
	}
	dir := filepath.Join(m.dir, "bin")
	errs := []error{os.Mkdir(dir, 0o755),
		copyFile(filepath.Join(dir, "mysqld"), packages+"/usr/sbin/mysqld"),
		copyFile(filepath.Join(dir, "component_keyring_file.so"), packages+"/usr/lib/mysql/plugin/component_keyring_file.so")}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		m.t.Fatal(err)
	}
	m.binary = "/srv/bin/mysqld"
	m.options = append(m.options, "--plugin-dir=/srv/bin", "--binlog-encryption=ON")
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
