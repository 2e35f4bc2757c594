// Package relay is the loop that carries an outbox from MySQL or MariaDB to RabbitMQ,
// and every question that needs both sides: check, status, resume,
// replay, prune, audit.
//
// Invariant: the checkpoint on disk never covers a transaction with an event
// that the broker has not confirmed and routed.
//
//	Source.Next ──► feed ──► session.admit ──► lanes ──► Publisher.Publish
//	 (transactions)              │                           │
//	                             ▼                           ▼
//	                           ledger ◄── session.settle ◄── Receipts
//	                             │
//	                             └──► checkpoint.File.Save, on a tick and at the end
//
// One goroutine (session.run) owns the ledger, the lanes and the window. The
// ledger numbers events in commit order and lets its state move over an event
// only when that one and all before it are settled; in the middle of a
// transaction the state says how many of its events are settled, so that a
// crash costs no more than the window and one save interval, however large the
// transaction is. Lanes hold an event back until the one before it of the same
// aggregate is confirmed. The window is the back-pressure: beyond it nothing
// is read.
//
// What is handed over from goroutine to goroutine goes many at a time: who is
// busy finds more when it comes back. The reader fills the feed (feed.go) up to a
// bound, the session gives the publisher all that may go out, and receipts come
// in lists, as the broker confirms (flight.go). Nobody waits for a batch to fill.
//
// Replay sends chosen events again, by the same session with another source and no
// checkpoint (resend.go): rows of the table (replayrows.go) from a snapshot, those
// of log files (history.go) from a binlog.Playback, copies of parked ones
// (replaycopy.go). What is confirmed is known to the process alone, and an early end
// names the rest.
//
// Poll (poll.go, pollsession.go) has no log and no checkpoint: what is not yet
// published stands in the table. One goroutine claims a batch, publishes it by
// lanes of its own, stamps what was confirmed and commits, in this order, so that
// a crash anywhere gives duplicates of a batch at most, and no loss:
//
//	binlog.Poller.Claim ──► lanes ──► Publisher.Publish
//	                          ▲              │
//	                          └── Receipts ◄─┘ ──► binlog.Poller.Settle
//
// Aggregates whose events the broker refuses are left out of the claims for a
// while that grows, so that they do not fill the batches. Run and Poll have the
// supervisor in common (supervisor.go): the retry, what is seen from outside,
// secrets and signals.
//
// The checkpoint keeps the table's columns as they are at its position
// (columns.go), by which a log that does not name them is read from there on.
//
// An event that is not wanted (wants.go) is numbered and settled at once. The
// checkpoint keeps the topics: a start that adds some reads their rows out of the
// table first (widen.go), and the checkpoint keeps those before until that backfill
// ends, in which rows that are not wanted get no number.
//
// With Stamp the saver stamps the rows that the state has come to cover, and then
// saves it: the checkpoint on disk never covers an event whose row is not stamped.
// The rows of a backfill are announced in the checkpoint before, since a backfill
// that begins anew does not find those that are stamped: what a crash broke off
// is done again at the next start (widen.go), and each event keeps its number.
//
// Bad events are parked in a file beside the checkpoint (parked.go, lot.go), whose
// lines have chained checksums. It is synced before the checkpoint that has the
// last one is saved, so that checksum must be found in it. Replay of parked events
// (replay.go) notes in the file what is gone, and in the end writes it anew, with
// the checksum that the checkpoint then still has in the first line.
//
// Prune (prune.go) deletes rows of the outbox that the broker has confirmed, as
// the checkpoint on disk tells: it finds some thousands that are old, asks the
// server then for the transactions that they can be of, waits until the
// checkpoint covers those and tells of no backfill, leaves out rows of parked
// events, and deletes. Beside a relay (pruning.go) it does the same on connections
// of its own, and nothing of the relay waits for it.
//
// What is seen from outside is on the board (board.go), which a session tells
// four times a second how it is: metrics and readiness are read from it, and each
// second a view (view.go), which /events streams to the status page
// (assets/page.html), and a sample for the plots (trace.go). None of these waits
// for a disk or a server; the depth of the queues is asked for on a connection of
// its own, while somebody looks (depths.go).
//
// Both loops of a session, that which reads and that which publishes and
// settles, leave in the pulse (pulse.go) when they last moved; the notifier
// (notify.go) tells systemd, and withholds its sign of life from a loop that
// hangs. While a save of the checkpoint hangs nothing new is taken in. SIGHUP and
// SIGUSR1 are in signals.go.
//
// Passwords and the files for TLS are read for each session (secret.go, tls.go):
// a refusal ends Run only when the files are still those that were refused.
// Package certs, which binlog and exchange use, says what is wrong with TLS.
//
// The last error is kept beside the checkpoint (last.go), as best can be, for
// status (status.go), which asks the file and the servers, and never the relay:
// it says the same while none runs. Check (check.go, queues.go) looks at what run
// needs, and at what only matters over time.
//
// An audit (audit.go) reads the ids of the table's rows of some time, and then what
// became of them: an inbox, or streams and queues. Both are sorted by the bytes of
// the id, in files where they are large (sorter.go), and read side by side; what
// only one side has is looked up once more before it is told (auditreport.go), and
// sent again, if that is asked for (republish.go). Two publishers are compared in
// the same way (compare.go), of which one is a relay with names of its own
// (shadow.go).
//
// Any error ends the session. The supervisor is the only retry: it waits, and
// begins again from the file, or of a poller the table, never from memory.
//
// Failures:
//
//	the broker returns or nacks an event     the session goes on and sends it again, with longer and longer waits
//	a link breaks, a server is away          the session ends, another begins (exit 75 after --give-up-after)
//	an event cannot be relayed               Run ends, exit 65; or it is parked, and its aggregate with it
//	settings, grants, topology, checkpoint,  Run ends, exit 78
//	parked file
//	the checkpoint cannot be saved           the session ends
//	rows cannot be stamped                   the session ends, and the checkpoint does not cover them
//	SIGTERM                                  reading stops, what is in flight is settled and saved, exit 0
//	SIGKILL                                  the next start sends again what was not yet saved as settled
//	a poller dies in a batch                 its rows are free, and sent again; none is stamped that was not confirmed
package relay
