package relaytest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The environment variables that name the servers. They win over .dev/env,
// which `make up` writes in the module's root with the same names.
const (
	envMySQL   = "RELAY_TEST_MYSQL_DSN"
	envMariaDB = "RELAY_TEST_MARIADB_DSN"
	envAMQP    = "RELAY_TEST_AMQP_URL"
)

// errNoServers says that neither the environment nor .dev/env names a server.
var errNoServers = errors.New("relaytest: no test servers: run \"make up\"")

// answerLimit is how long a test server may take to answer at all.
const answerLimit = 10 * time.Second

// MySQL creates a database with a fresh name on the test server, drops it in
// the test's cleanup, and returns a root DSN (go-sql-driver) that points to it.
// A test that finds no server fails.
func MySQL(t testing.TB) string {
	t.Helper()
	server, _, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	return fresh(t, server)
}

// MariaDB is MySQL on the MariaDB test server.
func MariaDB(t testing.TB) string {
	t.Helper()
	server, err := addressOf(envMariaDB)
	if err == nil && server == "" {
		err = errNoServers
	}
	if err != nil {
		t.Fatal(err)
	}
	return fresh(t, server)
}

// fresh makes a database on a server for the time of the test.
func fresh(t testing.TB, server string) string {
	t.Helper()
	name := Name(t)
	dsn, err := createDatabase(t.Context(), server, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(context.Background(), server, name); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// AMQP returns the URL of the test broker. It is shared: take names from Name.
// A test that finds no broker fails.
func AMQP(t testing.TB) string {
	t.Helper()
	_, broker, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(broker)
	if err != nil {
		t.Fatalf("relaytest: %s is not a URL", envAMQP)
	}
	conn, err := net.DialTimeout("tcp", hostPort(u), answerLimit)
	if err != nil {
		t.Fatalf("relaytest: the broker does not answer: %v: run \"make up\"", err)
	}
	conn.Close()
	return broker
}

// DB opens the database of dsn and closes it in the test's cleanup.
func DB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Name returns a fresh name of letters, digits and underscores, at most 20 of
// them, for a database, an exchange or a queue.
func Name(testing.TB) string { return freshName() }

func freshName() string { return "relay_" + strings.ToLower(rand.Text()[:12]) }

// Addresses returns the DSN of the test MySQL server and the URL of the test
// broker: from the environment, else from .dev/env. It does not dial them.
func Addresses() (dsn, amqpURL string, err error) {
	if dsn, err = addressOf(envMySQL); err != nil {
		return "", "", err
	}
	if amqpURL, err = addressOf(envAMQP); err != nil {
		return "", "", err
	}
	if dsn == "" || amqpURL == "" {
		return "", "", errNoServers
	}
	return dsn, amqpURL, nil
}

// addressOf is the value of a variable: from the environment, else from
// .dev/env; empty where it is in neither.
func addressOf(variable string) (string, error) {
	if value := os.Getenv(variable); value != "" {
		return value, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	file, err := readEnv(filepath.Join(root, ".dev", "env"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("relaytest: read addresses: %w", err)
	}
	return file[variable], nil
}

// moduleRoot walks up from the working directory to the directory of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("relaytest: no go.mod above the working directory")
		}
		dir = parent
	}
}

// readEnv reads lines NAME=value or NAME='value', as a shell would source them.
func readEnv(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		values[name] = unquote(value)
	}
	return values, nil
}

func unquote(s string) string {
	for _, q := range []string{"'", `"`} {
		if len(s) >= 2 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return strings.ReplaceAll(s[1:len(s)-1], `'\''`, "'")
		}
	}
	return s
}

// createDatabase makes database name on the server and returns a DSN to it.
func createDatabase(ctx context.Context, server, name string) (string, error) {
	if err := execOn(ctx, server, "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4"); err != nil {
		return "", fmt.Errorf("relaytest: create a database: %w: run \"make up\"", err)
	}
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return "", err
	}
	cfg.DBName = name
	return cfg.FormatDSN(), nil
}

func dropDatabase(ctx context.Context, server, name string) error {
	return execOn(ctx, server, "DROP DATABASE IF EXISTS `"+name+"`")
}

// execOn runs statements on the server of the DSN, in no database.
func execOn(ctx context.Context, server string, statements ...string) error {
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return fmt.Errorf("relaytest: %s is not a DSN", envMySQL)
	}
	cfg.DBName = ""
	cfg.Timeout = answerLimit
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "amqps" {
		return net.JoinHostPort(u.Hostname(), "5671")
	}
	return net.JoinHostPort(u.Hostname(), "5672")
}
