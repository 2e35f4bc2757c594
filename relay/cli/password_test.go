package cli_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// rotation is a password of the relay's, in a file, on one of its sides.
type rotation struct {
	side   string
	file   string
	way    proxy // to the server
	change func(password string)
}

func (o rotation) write(t *testing.T, password string) {
	t.Helper()
	fresh := o.file + ".new"
	if err := os.WriteFile(fresh, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, o.file); err != nil {
		t.Fatal(err)
	}
}

// TestPasswordRotation: the file is written, then the server's password is
// changed, and whenever the connection breaks the relay comes back: before the
// change with the old password, after it with the new one. One that the file
// does not have ends the relay. Seen to fail with a file that is read once:
// 78 at the second break; and without the old password: 78 at the first.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).begun()
		o := rotation{"source", filepath.Join(r.dir, "password"), r.toSource(), func(password string) {
			r.exec("ALTER USER " + r.user + " IDENTIFIED BY '" + password + "'")
		}}
		cfg := mustDSN(t, r.dsn)
		cfg.Passwd = ""
		r.dsn = cfg.FormatDSN()
		r.flags = append(r.flags, "--mysql-password-file", o.file)
		r.rotate(t, o)
	})
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		b := relaytest.PrivateRabbitMQ(t)
		b.Ctl(t, "add_user", "relay", secret)
		permit(t, b, "/")
		r := newRig(t)
		r.dropTopology()
		r.amqp = b.URL // as guest, for the test
		r.begun()
		o := rotation{"broker", filepath.Join(r.dir, "password"), r.toBroker(), func(password string) {
			b.Ctl(t, "change_password", "relay", password)
		}}
		r.flags = []string{"--amqp-url", (&url.URL{Scheme: "amqp", User: url.User("relay"), Host: o.way.Addr(), Path: "/"}).String(), "--amqp-password-file", o.file}
		r.rotate(t, o)
	})
}

func (r *rig) rotate(t *testing.T, o rotation) {
	o.write(t, secret)
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address, "--log-level", "warn")
	ready := func() { d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 }) }
	broken := func(n int) {
		t.Helper()
		ready()
		before := metric(t, address, `relay_reconnects_total{side="`+o.side+`"}`)
		o.way.Cut()
		d.until("it notices that the link is cut", func() bool { return metric(t, address, `relay_reconnects_total{side="`+o.side+`"}`) > before })
		r.insert(r.db, n, n)
		d.until("it relays again", func() bool { return r.state().Sequence == int64(n) })
	}
	ready()
	o.write(t, "hunter2-next")
	broken(1)
	o.change("hunter2-next")
	broken(2)
	o.write(t, "hunter2-last")
	o.change("hunter2-last")
	broken(3)
	o.change("hunter2-other")
	o.way.Cut()
	d.wantCode(78)
	r.wantEvents(r.take(0), 1, 3)
}
