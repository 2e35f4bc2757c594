package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sys/unix"
)

// surroundings are what figures depend on. What cannot be found out is "?".
type surroundings struct {
	Relay    string `json:"relay"` // its version, and the commit
	MySQL    string `json:"mysql"`
	RabbitMQ string `json:"rabbitmq"`
	Go       string `json:"go"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	Memory   string `json:"memory"`
}

func (s surroundings) String() string {
	return fmt.Sprintf("%s; MySQL %s; RabbitMQ %s; %s; Linux %s.\n%s, %d cores, %s.",
		s.Relay, s.MySQL, s.RabbitMQ, s.Go, s.Kernel, s.CPU, s.Cores, s.Memory)
}

// look finds out the surroundings.
func (b *bench) look(ctx context.Context) surroundings {
	s := surroundings{Relay: "?", MySQL: "?", RabbitMQ: "?", Go: runtime.Version(), Kernel: "?", CPU: "?", Cores: runtime.NumCPU(), Memory: "?"}
	if output, err := exec.CommandContext(ctx, b.relay, "version").Output(); err == nil {
		s.Relay, _, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	}
	// A build from a work tree has no version; make bench builds what is here.
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output(); err == nil {
		s.Relay += " (" + strings.TrimSpace(string(commit)) + ")"
	}
	if db, err := sql.Open("mysql", b.mysql); err == nil {
		_ = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.MySQL) // stays "?"
		db.Close()
	}
	if conn, err := amqp.Dial(b.broker); err == nil {
		if version, ok := conn.Properties["version"].(string); ok {
			s.RabbitMQ = version
		}
		conn.Close()
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		s.Memory = fmt.Sprintf("%d GiB", (uint64(info.Totalram)*uint64(info.Unit)+1<<29)>>30)
	}
	if model := cpuModel(); model != "" {
		s.CPU = model
	}
	return s
}

func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
