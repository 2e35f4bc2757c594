package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

const (
	aggregates  = 5000
	payloadSize = 300 // bytes
	// perStatement is how many rows an INSERT has at most in transactions of more
	// than ten; up to ten rows each has its own, as applications write them.
	perStatement = 100
)

// load is rows that were committed to an outbox of their own, and the place in
// the log before them, from which they are drained again and again.
type load struct {
	name   string
	events int
	dsn    string
	place  string // a checkpoint file
}

// loads writes as many loads, one after the other, as there are counts of events,
// into one outbox: the place of each is before its own events, and those of the
// following come behind them. Each begins a file of the log, so that the server
// finds the place at once.
func (b *bench) loads(ctx context.Context, perTx int, hot bool, counts ...int) ([]load, error) {
	name, dsn, db, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema.SQL); err != nil {
		return nil, err
	}
	var list []load
	left := 0
	for _, n := range counts {
		left += n
	}
	for i, n := range counts {
		l := load{name: fmt.Sprintf("transactions of %s", figure(float64(perTx))), events: left, dsn: dsn,
			place: filepath.Join(b.dir, fmt.Sprintf("%s.%d.place", name, i))}
		if perTx == 1 {
			l.name = "transactions of 1"
		}
		if err := savePlace(ctx, db, name, l.place); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := b.unsynced(ctx, func() error { return write(ctx, dsn, perTx, n, hot) }); err != nil {
			return nil, fmt.Errorf("write %d rows in %s: %w", n, l.name, err)
		}
		b.log.Printf("  wrote %d rows in %s in %v", n, l.name, time.Since(began).Round(100*time.Millisecond))
		left -= n
		list = append(list, l)
	}
	return list, nil
}

// loadKey is what makes two loads alike.
type loadKey struct {
	perTx int
	hot   bool
}

// load is loads for one, of b.events, which is written once.
func (b *bench) load(ctx context.Context, perTx int, hot bool) (load, error) {
	key := loadKey{perTx, hot}
	if l, found := b.loaded[key]; found {
		return l, nil
	}
	list, err := b.loads(ctx, perTx, hot, b.events)
	if err != nil {
		return load{}, err
	}
	b.loaded[key] = list[0]
	return list[0], nil
}

// savePlace makes the checkpoint of a relay that has settled all that the server
// has executed, and begins a file of the log.
func savePlace(ctx context.Context, db *sql.DB, database, path string) error {
	if _, err := db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return err
	}
	state := checkpoint.State{Flavor: "mysql", Table: database + ".outbox"}
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid").Scan(&state.GTIDSet, &state.ServerUUID); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, `SELECT column_name, column_type, IF(data_type IN ('char', 'binary'), character_octet_length, 0), COALESCE(character_set_name, '')
		FROM information_schema.columns WHERE table_schema = ? AND table_name = 'outbox' ORDER BY ordinal_position`, database)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() { // without them, a relay looks for the table's alterations in all of the log first
		var c checkpoint.Column
		if err := rows.Scan(&c.Name, &c.Type, &c.Octets, &c.Charset); err != nil {
			return err
		}
		state.Columns = append(state.Columns, c)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	file, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Save(state)
}

// begin makes a copy of the load's place for one relay, and returns its path.
func (l load) begin(dir string) (string, error) {
	text, err := os.ReadFile(l.place)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, freshName()+".json")
	return path, os.WriteFile(path, text, 0o640)
}

// write commits rows. Hot: half of them are of one aggregate.
func write(ctx context.Context, dsn string, perTx, events int, hot bool) error {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	cfg.MultiStatements = true
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return err
	}
	defer db.Close()
	writers := 16 // the server writes their commits together
	if perTx > 10 {
		writers = 4
	}
	db.SetMaxIdleConns(writers)
	failed := make([]error, writers)
	var done sync.WaitGroup
	for i := range writers {
		mine := events / writers
		if i < events%writers {
			mine++
		}
		done.Go(func() {
			w := writer{random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i))), hot: hot, made: uint64(time.Now().UnixNano())}
			for mine > 0 && failed[i] == nil {
				n := min(perTx, mine)
				mine -= n
				_, failed[i] = db.ExecContext(ctx, w.transaction(n))
			}
		})
	}
	done.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// writer makes transactions.
type writer struct {
	random *rand.Rand
	hot    bool
	made   uint64 // rows
	text   []byte
}

// transaction is SQL that commits n rows.
func (w *writer) transaction(n int) string {
	each := 1
	if n > 10 {
		each = perStatement
	}
	w.text = append(w.text[:0], "BEGIN"...)
	for i := range n {
		if i%each == 0 {
			w.text = append(w.text, "; INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES "...)
		} else {
			w.text = append(w.text, ',')
		}
		w.row()
	}
	w.text = append(w.text, "; COMMIT"...)
	return string(w.text)
}

func (w *writer) row() {
	aggregate := w.random.IntN(aggregates)
	if w.hot && w.random.IntN(2) == 0 {
		aggregate = 0
	}
	var id [16]byte
	w.made++
	binary.BigEndian.PutUint64(id[:8], w.made) // ascending, as those of UUID version 7 are
	binary.BigEndian.PutUint64(id[8:], w.random.Uint64())
	w.text = fmt.Appendf(w.text, "(0x%x,%d,'order.placed','", id, aggregate)
	w.text = append(w.text, payload(w.random)...)
	w.text = append(w.text, "')"...)
}

// payload is an order in JSON, as MySQL prints it: it takes payloadSize bytes
// as it stands, and as the message's body.
func payload(random *rand.Rand) string {
	head := fmt.Sprintf(`{"id": %d, "note": "`, 1_000_000+random.IntN(9_000_000))
	tail := fmt.Sprintf(`", "paid": true, "items": [{"sku": "A-%05d", "count": %d, "price": %d.25}, {"sku": "B-%05d", "count": %d, "price": %d.5}], "total": %d, "customer": "%s"}`,
		random.IntN(100_000), 1+random.IntN(9), 10+random.IntN(90),
		random.IntN(100_000), 1+random.IntN(9), 10+random.IntN(90),
		1000+random.IntN(9000), strconv.FormatUint(random.Uint64()|1<<63, 36))
	const words = "please leave it with the neighbour on the second floor if nobody opens, and ring twice before you go away again. thank you very much "
	n := payloadSize - len(head) - len(tail)
	return head + (words + words)[:n] + tail
}
