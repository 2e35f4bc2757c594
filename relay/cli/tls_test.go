package cli_test

import (
	"bytes"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// encrypted is a server with TLS and what a client needs to get in: the
// server's files are in tls, the client's in its.
type encrypted struct {
	t         *testing.T
	side      string // mysql or amqp, as flags begin
	dir       string // of the server
	authority *relaytest.Authority
	reload    func() // has the server read its files again
}

const hostname = "server.test" // in the servers' certificates

func newEncrypted(t *testing.T, side string) *encrypted {
	t.Helper()
	e := &encrypted{t: t, side: side, dir: filepath.Join(t.TempDir(), side), reload: func() {}}
	e.renew()
	other := relaytest.NewAuthority(t, "Stray Authority")
	relaytest.Write(t, e.its(), "other-ca.pem", other.Certificate)
	e.write(e.its(), "stray", other, time.Hour)
	return e
}

func (e *encrypted) tls() string { return filepath.Join(e.dir, "tls") }
func (e *encrypted) its() string { return filepath.Join(e.dir, "..", "client-"+e.side) }

func (e *encrypted) write(dir, name string, by *relaytest.Authority, life time.Duration, hosts ...string) {
	e.t.Helper()
	certificate, key := by.Issue(e.t, name, life, hosts...)
	relaytest.Write(e.t, dir, name+"-key.pem", key)
	relaytest.Write(e.t, dir, name+".pem", certificate)
}

// renew gives both a new authority, of which the old one knows nothing.
func (e *encrypted) renew() {
	e.t.Helper()
	e.authority = relaytest.NewAuthority(e.t, "Authority of "+relaytest.Name(e.t))
	relaytest.Write(e.t, e.its(), "ca.pem", e.authority.Certificate)
	e.write(e.its(), "client", e.authority, time.Hour)
	relaytest.Write(e.t, e.tls(), "ca.pem", e.authority.Certificate)
	e.serve(time.Hour)
}

// serve gives the server a certificate.
func (e *encrypted) serve(life time.Duration) {
	e.t.Helper()
	e.write(e.tls(), "server", e.authority, life, hostname, "10.1.2.3")
	e.reload()
}

// flags are those with an authority's file, and a client's certificate where
// it is not empty.
func (e *encrypted) flags(ca, client string) []string {
	list := []string{"--" + e.side + "-tls-ca", filepath.Join(e.its(), ca), "--" + e.side + "-tls-server-name", hostname}
	if client != "" {
		path := filepath.Join(e.its(), client)
		list = append(list, "--"+e.side+"-tls-cert", path+".pem", "--"+e.side+"-tls-key", path+"-key.pem")
	}
	return list
}

// good are the flags that let a relay in.
func (e *encrypted) good() []string { return e.flags("ca.pem", "client") }

// mysqlTLS are the options of a server with TLS.
var mysqlTLS = []string{"--ssl-ca=/srv/tls/ca.pem", "--ssl-cert=/srv/tls/server.pem", "--ssl-key=/srv/tls/server-key.pem"}

// encryptedRig is a rig on a server with TLS, whose user must show a
// certificate; the test itself need not.
func encryptedRig(t *testing.T, e *encrypted, server, reload string) *rig {
	t.Helper()
	r := rigOn(t, databaseOn(t, server+"?tls=skip-verify"), schema.SQL)
	cfg := mustDSN(t, r.dsn)
	cfg.TLSConfig = ""
	r.dsn = cfg.FormatDSN()
	r.exec("ALTER USER " + r.user + " REQUIRE X509")
	e.reload = func() { r.exec(reload) }
	return r
}

// tap keeps what passes on a link, to look for what must not be read there.
type tap struct {
	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu
}

func (tp *tap) on(p proxy) {
	for _, d := range []relaytest.Direction{relaytest.Up, relaytest.Down} {
		p.Watch(d, func(b []byte) {
			tp.mu.Lock()
			defer tp.mu.Unlock()
			tp.seen.Write(b)
		})
	}
}

func (tp *tap) saw(text string) bool {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return bytes.Contains(tp.seen.Bytes(), []byte(text))
}

func (r *rig) insertText(n int, text string) {
	r.t.Helper()
	if _, err := r.db.Exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (?, ?, 'order.placed', JSON_OBJECT('text', ?), UTC_TIMESTAMP(6))", id(n), n, text); err != nil {
		r.t.Fatal(err)
	}
}

// wantTexts compares the texts that deliveries carry, in order.
func wantTexts(t *testing.T, list []amqp.Delivery, want ...string) {
	t.Helper()
	var got []string
	for _, m := range list {
		_, text, _ := strings.Cut(string(m.Body), ":")
		got = append(got, strings.Trim(text, ` "}`))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the texts %q, want %q", got, want)
	}
}

// TestTLS is a relay between a MySQL server and a broker that let in nobody
// without TLS and a certificate: it is refused for each fault of the
// certificates, with what to type, and relays with the right ones. All that
// passes is encrypted, that of the second connection to MySQL too, over which
// the log comes; and new certificates, of a new authority, need no restart.
// Seen to fail with files that are read once: the relay ends with 78 at the
// rotation; with the log's connection without TLS: the server refuses it, and one
// that lets it in shows the text to the tap.
func TestTLS(t *testing.T) {
	t.Parallel()
	source, broker := newEncrypted(t, "mysql"), newEncrypted(t, "amqp")
	b, addr := relaytest.PrivateTLSRabbitMQ(t, broker.dir)
	r := encryptedRig(t, source, relaytest.PrivateMySQLIn(t, source.dir, mysqlTLS...), "ALTER INSTANCE RELOAD TLS")
	broker.reload = func() { b.Ctl(t, "eval", "ssl:clear_pem_cache().") }
	r.amqp = b.URL
	amqps := func(addr string) string { return "--amqp-url=amqps://guest:guest@" + addr + "/" }
	run := func(flags ...[]string) []string {
		return append([]string{"run", "--partitions", "1"}, slices.Concat(flags...)...)
	}
	to := []string{amqps(addr)}
	plain, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}

	r.exec("SET GLOBAL require_secure_transport = ON")
	r.refuse(t, []refusal{
		{"no TLS to MySQL", run(to, broker.good()), []string{"RELAY_MYSQL_DSN=" + strings.Replace(r.root, "?tls=skip-verify", "", 1)}, 78, []string{"insecure transport", "type: --mysql-tls-ca FILE"}},
		{"no TLS for an account that must have it", run(to, broker.good()), nil, 78, []string{"Access denied", "REQUIRE SSL or X509", "--mysql-tls-ca FILE"}},
		{"another authority of MySQL", run(to, broker.good(), source.flags("other-ca.pem", "client")), nil, 78, []string{`"CN=server" is of the authority "CN=` + source.authority.Name, "the file of --mysql-tls-ca", "type: --mysql-tls-ca FILE"}},
		{"the system's authorities for MySQL", run(to, broker.good(), []string{"--mysql-tls-server-name", hostname}), nil, 78, []string{"which this host does not trust", "type: --mysql-tls-ca FILE"}},
		{"another name of MySQL", run(to, broker.good(), source.good(), []string{"--mysql-tls-server-name", ""}), nil, 78, []string{`is for server.test, 10.1.2.3, and not for "127.0.0.1"`, "type: --mysql-tls-server-name server.test"}},
		{"no certificate for MySQL", run(to, broker.good(), source.flags("ca.pem", "")), nil, 78, []string{"Access denied", "REQUIRE X509", "--mysql-tls-cert FILE --mysql-tls-key FILE"}},
		{"a certificate that MySQL does not accept", run(to, broker.good(), source.flags("ca.pem", "stray")), nil, 78, []string{`refused the client's certificate "CN=stray" of the authority "CN=Stray Authority"`, "--mysql-tls-cert FILE"}},
		{"no TLS to the broker", run(source.good(), []string{"--amqp-url=amqp://guest:guest@" + addr + "/"}), nil, 78, []string{"amqp://" + addr, "wants TLS at that port", "type: --amqp-url amqps://"}},
		{"TLS to the broker's port without", run(source.good(), broker.good(), []string{amqps(plain.Host)}), nil, 78, []string{"amqps://" + plain.Host, "there is no TLS at that port"}},
		{"another authority of the broker", run(source.good(), to, broker.flags("other-ca.pem", "client")), nil, 78, []string{`is of the authority "CN=` + broker.authority.Name, "the file of --amqp-tls-ca", "type: --amqp-tls-ca FILE"}},
		{"another name of the broker", run(source.good(), to, broker.good(), []string{"--amqp-tls-server-name", ""}), nil, 78, []string{`is for server.test, 10.1.2.3, and not for "127.0.0.1"`, "type: --amqp-tls-server-name server.test"}},
		{"no certificate for the broker", run(source.good(), to, broker.flags("ca.pem", "")), nil, 78, []string{"the server ended TLS", "--amqp-tls-cert FILE --amqp-tls-key FILE"}},
		{"a certificate that the broker does not accept", run(source.good(), to, broker.flags("ca.pem", "stray")), nil, 78, []string{`refused the client's certificate "CN=stray"`, "--amqp-tls-cert FILE"}},
	})
	// MySQL loads none that has expired.
	const life = 6 * time.Second
	end := time.Now().Add(life)
	source.serve(life)
	broker.serve(life)
	relaytest.Wait(t, patience, "the certificates expire", func() bool { return time.Now().After(end) })
	for _, e := range []*encrypted{source, broker} {
		t.Run("a certificate that has expired, "+e.side, func(t *testing.T) {
			r.run(run(source.good(), to, broker.good(), []string{"--give-up-after", "1s"})...).want(t, 75, `the certificate "CN=server" has expired on 20`, "put a new one on the server")
		})
		e.serve(time.Hour)
	}

	const marker = "planted-payload-"
	var seen tap
	toSource, toBroker := r.toSource(), proxy{relaytest.NewProxy(t, addr)}
	seen.on(toSource)
	seen.on(toBroker)
	r.flags = slices.Concat(source.good(), broker.good(), []string{amqps(toBroker.Addr())})
	r.run("check", "--partitions", "1").want(t, 0, "TLS 1.3 TLS_AES_", "verified", toSource.Addr()+", TLS", toBroker.Addr()+"/%2F, TLS")
	r.insertText(1, marker+"1")
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address, "--log-level", "warn")
	relayed := func(n int) {
		t.Helper()
		d.until("it relays", func() bool { return r.exists() && r.state().Sequence == int64(n) })
	}
	relayed(1)
	r.insertText(2, marker+"2")
	relayed(2)
	for i, e := range []*encrypted{source, broker} {
		e.renew()
		for _, way := range []proxy{toSource, toBroker} {
			way.Cut()
		}
		r.insertText(3+i, marker+"later")
		relayed(3 + i)
	}
	d.stop()
	wantTexts(t, r.take(0), marker+"1", marker+"2", marker+"later", marker+"later")
	if seen.saw(marker) || seen.saw("order.placed") {
		t.Error("an event passed that could be read")
	}
	if toSource.Passed(relaytest.Down) == 0 || toBroker.Passed(relaytest.Up) == 0 {
		t.Error("the taps were in nobody's way")
	}
	r.withoutTLS(t, source)
}

// withoutTLS is a MySQL server without TLS: it is refused to who wants TLS, and
// followed by who only prefers it, on the connection of the log, too.
func (r *rig) withoutTLS(t *testing.T, source *encrypted) {
	r.flags = r.flags[len(source.good()):] // those for the broker
	r.exec("ALTER USER "+r.user+" REQUIRE NONE", "SET GLOBAL require_secure_transport = OFF")
	r.dsn += "?tls=skip-verify"
	r.run("check", "--partitions", "1").want(t, 0, "not verified")
	r.exec("SET GLOBAL tls_version = ''", "ALTER INSTANCE RELOAD TLS NO ROLLBACK ON ERROR") // it goes on without TLS
	defer r.exec("SET GLOBAL tls_version = 'TLSv1.3'", "ALTER INSTANCE RELOAD TLS")
	r.run("run", "--partitions", "1").want(t, 78, "the database server at "+mustDSN(t, r.dsn).Addr+" has no TLS", "leave --mysql-tls-… and tls= away")
	r.dsn = strings.Replace(r.dsn, "skip-verify", "preferred", 1)
	r.run("check", "--partitions", "1").want(t, 0, mustDSN(t, r.dsn).Addr+", no TLS", "verified")
	d := r.start("--partitions", "1")
	d.until("it follows", func() bool { return strings.Contains(d.text(), `"message":"following"`) })
	if _, err := r.db.Exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (?, 1, 'order.placed', '{}', UTC_TIMESTAMP(6))", id(9)); err != nil {
		t.Fatal(err)
	}
	d.until("it relays", func() bool { return r.state().Sequence == 5 })
	d.stop()
}

// TestTLSMariaDB is TestTLS in short for the other server.
func TestTLSMariaDB(t *testing.T) {
	t.Parallel()
	source := newEncrypted(t, "mysql")
	r := encryptedRig(t, source, relaytest.PrivateMariaDBIn(t, source.dir, mysqlTLS...), "FLUSH SSL")
	run := func(flags []string) []string { return append([]string{"run", "--partitions", "1"}, flags...) }
	r.refuse(t, []refusal{
		{"no TLS", run(nil), nil, 78, []string{"REQUIRE SSL or X509", "--mysql-tls-ca FILE"}},
		{"another authority", run(source.flags("other-ca.pem", "client")), nil, 78, []string{`is of the authority "CN=` + source.authority.Name, "type: --mysql-tls-ca FILE"}},
		{"no certificate", run(source.flags("ca.pem", "")), nil, 78, []string{"Access denied", "REQUIRE X509", "--mysql-tls-cert FILE --mysql-tls-key FILE"}},
		{"a certificate that is not accepted", run(source.flags("ca.pem", "stray")), nil, 78, []string{`refused the client's certificate "CN=stray"`, "--mysql-tls-cert FILE"}},
	})
	var seen tap
	way := r.toSource()
	seen.on(way)
	r.flags = source.good()
	d := r.start("--partitions", "1")
	r.insertText(1, "planted-payload-1")
	d.until("it relays", func() bool { return r.exists() && r.state().Sequence == 1 })
	source.renew()
	way.Cut()
	r.insertText(2, "planted-payload-2")
	d.until("it relays with the new certificates", func() bool { return r.state().Sequence == 2 })
	d.stop()
	wantTexts(t, r.take(0), "planted-payload-1", "planted-payload-2")
	if seen.saw("planted-payload") || way.Passed(relaytest.Down) == 0 {
		t.Error("an event passed that could be read, or nothing passed")
	}
}
