package checkpoint

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary runs itself again as a child that takes one of these parts.
const (
	partEnv = "RELAY_CHECKPOINT_TEST_PART"
	pathEnv = "RELAY_CHECKPOINT_TEST_PATH"
)

func TestMain(m *testing.M) {
	path := os.Getenv(pathEnv)
	switch os.Getenv(partEnv) {
	case "":
		os.Exit(m.Run())
	case "hold": // open, tell, keep the lock until killed
		open := must(Open(path))
		defer open.Close()
		fmt.Println("held")
		time.Sleep(time.Minute)
	case "open": // open and tell how it went
		f, err := Open(path)
		if err == nil {
			err = f.Close()
		}
		fmt.Println(err)
	case "read":
		_, err := Read(path)
		fmt.Println(err)
	case "save": // save in a loop and tell each number once it is durable
		f := must(Open(path))
		s, _ := f.State()
		s.Flavor, s.Table = "mysql", "shop.outbox"
		for {
			s.Sequence++
			s.GTIDSet = strings.Repeat(fmt.Sprintf("%d,", s.Sequence), 2000)
			if err := f.Save(s); err != nil {
				panic(err)
			}
			fmt.Println(s.Sequence)
		}
	case "keep": // keep copies in a loop
		f := must(Open(path))
		for {
			must(f.Keep())
			fmt.Println("kept")
		}
	}
	os.Exit(0)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// child is the test binary in a part.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// start runs the test binary in a part, as uid if that is not negative.
func start(t *testing.T, part, path string, uid int) *child {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), partEnv+"="+part, pathEnv+"="+path)
	cmd.Stderr = os.Stderr
	if uid >= 0 {
		// The binary lies where only its owner can reach it: as another user
		// it is run by way of a copy in a directory open to all.
		dir := openDir(t)
		copied := dir + "/checkpoint.test"
		b, err := os.ReadFile(bin)
		if err == nil {
			err = os.WriteFile(copied, b, 0o755)
		}
		if err == nil {
			err = os.Chmod(copied, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Dir = copied, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &child{cmd: cmd, out: bufio.NewScanner(out)}
}

// line waits for the child's next line.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child ended without a word: %v", c.out.Err())
	}
	return c.out.Text()
}

// kill sends SIGKILL, waits for the end and returns the last whole line that
// was not read yet, or last.
func (c *child) kill(t *testing.T, last string) string {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for c.out.Scan() {
		last = c.out.Text()
	}
	c.cmd.Wait()
	return last
}

// openDir is a temporary directory that every user can reach; unlike that of
// t.TempDir, whose parent is closed.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay-checkpoint-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
