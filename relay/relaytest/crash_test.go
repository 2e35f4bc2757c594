package relaytest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// envSeed repeats a crash test.
const envSeed = "RELAY_TEST_SEED"

// seed is that of the environment, else a new one; the test's log names it.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1e9)
	if text := os.Getenv(envSeed); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q is not a seed", envSeed, text)
		}
		seed = given
	}
	t.Logf("to repeat: %s=%d go test -run '^%s$' ./relay/relaytest", envSeed, seed, t.Name())
	return seed
}

// playDemo runs a demo on a relay built from the module, and fails the test
// when a promise was broken, or when there was nothing to break it with.
func playDemo(t *testing.T, config DemoConfig) Report {
	t.Helper()
	config.Relay, config.Seed = Build(t), seed(t)
	report, err := Demo(t.Context(), config, t.Output())
	if tableErr := report.WriteTable(t.Output()); tableErr != nil {
		t.Error(tableErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		t.Error("a promise was broken: see the table")
	}
	if report.Committed < 100 || report.RolledBack == 0 || report.Kills != config.Kills {
		t.Errorf("%d events committed, %d rolled back, %d kills of %d: that proves nothing",
			report.Committed, report.RolledBack, report.Kills, config.Kills)
	}
	return report
}

// TestCrash kills the relay at seeded moments: nothing is lost, invented or
// reordered, and each event has one effect.
func TestCrash(t *testing.T) {
	t.Parallel()
	playDemo(t, DemoConfig{MySQL: PrivateMySQL(t), XA: true, Duration: 16 * time.Second, Kills: 8, Rate: 500})
}

// TestCrashInBackfill kills the relay while it sends the rows that it found in
// the table, under load.
func TestCrashInBackfill(t *testing.T) {
	t.Parallel()
	playDemo(t, DemoConfig{Backlog: 2000, Duration: time.Second, Kills: 4, Rate: 500})
}

// TestGracefulStop stops the relay under load, again and again: each time it
// settles what is in flight and exits 0, and the next start sends nothing twice.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	report := playDemo(t, DemoConfig{MySQL: PrivateMySQL(t), XA: true, Duration: 8 * time.Second, Kills: 4, Graceful: true, Rate: 500})
	if sent := report.Duplicates - report.Redelivered; sent != 0 {
		t.Errorf("%d events were sent twice, want 0", sent)
	}
}
