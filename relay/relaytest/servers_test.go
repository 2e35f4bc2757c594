package relaytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	text := "# written by make up\n" +
		"RELAY_TEST_MYSQL_DSN='root:relay@tcp(127.0.0.1:1)/?x=y'\n" +
		"export RELAY_TEST_AMQP_URL=amqp://guest:guest@127.0.0.1:2/\n\nEMPTY=\nQUOTE='it'\\''s'\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	values, err := readEnv(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"RELAY_TEST_MYSQL_DSN": "root:relay@tcp(127.0.0.1:1)/?x=y",
		"RELAY_TEST_AMQP_URL":  "amqp://guest:guest@127.0.0.1:2/",
		"EMPTY":                "",
		"QUOTE":                "it's",
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestMySQLIsFresh(t *testing.T) {
	server, _, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	isFresh(t, MySQL, server)
}

func TestMariaDBIsFresh(t *testing.T) {
	server, err := addressOf(envMariaDB)
	if err != nil {
		t.Fatal(err)
	}
	isFresh(t, MariaDB, server)
	var mariadb bool
	if err := DB(t, server).QueryRow("SELECT FALSE /*M! OR TRUE */").Scan(&mariadb); err != nil || !mariadb {
		t.Errorf("it is no MariaDB: %v", err)
	}
}

func isFresh(t *testing.T, create func(testing.TB) string, server string) {
	var name string
	t.Run("create", func(t *testing.T) {
		db := DB(t, create(t))
		if err := db.QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	var left int
	if err := DB(t, server).QueryRow("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if name == "" || left != 0 {
		t.Errorf("database %q: %d left after its test, want 0", name, left)
	}
}

func TestAMQPAnswers(t *testing.T) {
	if AMQP(t) == "" {
		t.Error("no URL")
	}
}
