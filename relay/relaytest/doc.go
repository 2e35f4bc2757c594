// Package relaytest is to the relay what net/http/httptest is to net/http: what
// the demo, the crash tests and the benchmarks stand on. No part of the relay
// imports it.
//
// # Purpose
//
// To show on real servers, with the real binary, that every committed event
// arrives, that nothing else does, that each aggregate's events come in commit
// order, and that idempotent consumers apply each of them once.
//
// # Data flow
//
//	Writer ──► orders and outbox, one transaction ──► relay (Process) ──► queues
//	   │                                                                    │
//	   │ Log: what was committed, what was rolled back    Deliveries, Effects│
//	   └─────────────────────────► History ─► Judge ─► Verdict ◄── Consumers ┘
//
// Demo plays all of it, and kills the relay from outside at seeded moments: no
// production code has a hook for it. Judge is pure, and its tests hold histories
// with every fault, so that it is known to be able to fail.
//
// Soak plays it on servers of its own, behind two of Proxy, in rounds of faults:
// those of the relay, of either server and of the links. Each kind is an entry
// of faults (fault.go) and comes by a seeded deck, so that every kind comes; one
// that is added there is played. After each round the relay must have caught up
// by itself, and its metrics tell what it leaks.
//
// # Invariant
//
// The writer records an event as committed only when the server has said so: by
// the answer to COMMIT or, when that was lost, by a locking read afterwards. Each
// aggregate belongs to one goroutine, so its commit order is known.
//
// # Failures
//
//	no server named, or none answers   the test fails: run "make up". Never a skip
//	the relay ends by itself           the demo ends with its exit code and last words
//	nothing is delivered for a minute  the demo gives up waiting, and judges what came
//	it does not catch up after a round the soak ends; its error names round and seed
//	a promise is broken                Report.OK is false; the table gives ids
//	the writer's connection is lost    its open transaction counts as rolled back, a
//	                                   commit without an answer is asked about
//
// After a failure the relay's log and checkpoint stay in a directory that the
// error names. On the servers nothing stays.
package relaytest
