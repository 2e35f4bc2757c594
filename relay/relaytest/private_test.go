package relaytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestPrivateMySQL(t *testing.T) {
	var mode, format string
	dsn := PrivateMySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-image=MINIMAL")
	err := DB(t, dsn).QueryRow("SELECT @@gtid_mode, @@binlog_row_image").Scan(&mode, &format)
	if err != nil {
		t.Fatal(err)
	}
	if mode != "OFF" || format != "MINIMAL" {
		t.Errorf("gtid_mode %s, binlog_row_image %s", mode, format)
	}
}

// A program's server answers, tells its process id, and is gone when it is
// stopped.
func TestStartMySQL(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mysqld")
	dsn, stop, err := StartMySQL(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Error(err)
	}
	process := filepath.Join("/proc", strings.TrimSpace(string(text)))
	if _, err := os.Stat(process); err != nil {
		t.Errorf("it is not process %q: %v", text, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := execOn(t.Context(), dsn, "DO 1"); err == nil {
		t.Error("it answers after its end")
	}
	if _, err := os.Stat(process); err == nil {
		t.Errorf("process %s is there after its end", text)
	}
}

// TestPrivateRabbitMQ: what is stored outlives a restart and a crash.
func TestPrivateRabbitMQ(t *testing.T) {
	b := PrivateRabbitMQ(t)
	queue := Name(t)
	declare := func(passive bool) error {
		return onBroker(b.URL, func(channel *amqp.Channel) error {
			declare := channel.QueueDeclare
			if passive {
				declare = channel.QueueDeclarePassive
			}
			_, err := declare(queue, true, false, false, false, nil)
			return err
		})
	}
	if err := declare(false); err != nil {
		t.Fatal(err)
	}
	for name, again := range map[string]func(testing.TB, func()){"restart": b.Restart, "crash": b.Crash} {
		again(t, func() {
			if err := declare(true); err == nil {
				t.Errorf("%s: the broker answers while it is away", name)
			}
		})
		if err := declare(true); err != nil {
			t.Errorf("%s: the queue is gone: %v", name, err)
		}
	}
	if text := b.Ctl(t, "list_vhosts", "--silent"); text != "/\n" {
		t.Errorf("rabbitmqctl list_vhosts prints %q", text)
	}
}
