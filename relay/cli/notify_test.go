package cli_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// systemd is the receiving end of sd_notify(3): a datagram socket.
type systemd struct {
	path string
	mu   sync.Mutex
	got  []string // guarded by mu
}

func listenAsSystemd(t *testing.T) *systemd {
	t.Helper()
	s := &systemd{path: filepath.Join(t.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.got = append(s.got, string(buffer[:n]))
			s.mu.Unlock()
		}
	}()
	return s
}

// has tells whether a message with that beginning has come, and how many.
func (s *systemd) has(beginning string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		if strings.HasPrefix(m, beginning) {
			n++
		}
	}
	return n
}

// order is where the first of each stands among what came; -1: not there.
func (s *systemd) order(messages ...string) (at []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		at = append(at, slices.Index(s.got, m))
	}
	return at
}

// TestNotify: systemd is told of readiness only when the relay follows and
// publishes, of its state while it can't, of life by both loops, and of the
// stop. Seen to fail with READY=1 sent when MySQL is connected.
func TestNotify(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	broker := r.toBroker()
	broker.freeze()
	systemd := listenAsSystemd(t)
	d := r.startWith([]string{"NOTIFY_SOCKET=" + systemd.path, "WATCHDOG_USEC=3000000"}, "run", "--partitions", "1")
	d.until("systemd is shown why, kept from giving up, and told of life", func() bool {
		return systemd.has("STATUS=starting: not yet connected to RabbitMQ") > 0 && systemd.has("EXTEND_TIMEOUT_USEC=") > 0 && systemd.has("WATCHDOG=1") > 0
	})
	if systemd.has("READY=1") > 0 {
		t.Error("READY=1 was sent before the relay could publish")
	}
	broker.Flow(relaytest.Up)
	broker.Flow(relaytest.Down)
	d.until("READY=1 comes", func() bool { return systemd.has("READY=1") > 0 })
	d.until("the state is shown", func() bool { return systemd.has("STATUS=following; lag 0.0 s, 0 events in flight") > 0 })
	alive := systemd.has("WATCHDOG=1")
	d.until("an idle relay goes on to tell of life", func() bool { return systemd.has("WATCHDOG=1") > alive+1 })
	d.stop()
	relaytest.Wait(t, patience, "systemd is told of the stop", func() bool { return systemd.has("STOPPING=1") > 0 })
	if at := systemd.order("READY=1", "STOPPING=1"); at[1] < at[0] || systemd.has("READY=1") != 1 || systemd.has("STOPPING=1") != 1 {
		t.Errorf("READY=1 and STOPPING=1 came at %v", at)
	}
}

// TestSignals: SIGHUP makes the relay connect anew, with what its password file
// holds now; SIGUSR1 makes it log where it stands, at any level.
func TestSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := rotation{file: filepath.Join(r.dir, "password")}
	o.write(t, secret)
	d := r.begun().start("--partitions", "1", "--mysql-password-file", o.file, "--log-level", "warn")
	r.insert(r.db, 1, 10)
	d.until("all is settled", func() bool { return r.covers(r.executed()) })

	if err := d.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var told struct {
		State    string `json:"state"`
		Ready    bool   `json:"ready"`
		Position string `json:"position"`
		Sequence int64  `json:"sequence"`
	}
	d.until("it tells where it stands", func() bool {
		for line := range strings.Lines(d.text()) {
			if strings.Contains(line, `"message":"status"`) {
				return json.Unmarshal([]byte(line), &told) == nil
			}
		}
		return false
	})
	if !told.Ready || told.Sequence != 10 || !strings.HasPrefix(told.State, "following") || told.Position == "" {
		t.Errorf("it tells %+v", told)
	}

	// The old connections are there to go on with; new ones show that the file
	// was read.
	before := r.connections()
	o.write(t, "hunter2-next")
	r.exec("ALTER USER " + r.user + " IDENTIFIED BY 'hunter2-next'")
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.until("it has connected anew", func() bool {
		now := r.connections()
		return len(now) > 0 && !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) })
	})
	r.insert(r.db, 11, 20)
	d.until("it relays", func() bool { return r.covers(r.executed()) })
	d.stop()
	if doubled := r.judge(r.take(0), 20); doubled > 0 {
		t.Errorf("%d events came twice", doubled)
	}
}

// connections are the ids of those that the relay's user has.
func (r *rig) connections() (ids []string) {
	r.t.Helper()
	rows, err := r.db.Query("SELECT id FROM information_schema.processlist WHERE user = ?", r.user)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}
