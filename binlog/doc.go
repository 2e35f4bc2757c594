// Package binlog is the outbox as MySQL or MariaDB has it: the live stream of what is
// committed, the scan of what the table holds, and what a server must be like
// for both. It is the only package that imports go-mysql.
//
// Invariant: Stream.Next hands out every committed insert into the outbox
// table exactly once after the position, in the order of the log, and nothing
// that was not committed; what it cannot read stops it.
//
// A row's way:
//
//	server ──► Stream
//	             ├─► dump: a replica's connection, packets to raw events; those
//	             │   that are too large for memory to a file, or nowhere
//	             ├─► define: which columns unnamed rows have (below)
//	             └─► assembler: groups of events to transactions, by GTID
//	                   ├─► peekTableMap: drops foreign tables at their name
//	                   ├─► payload: unpacks compressed transactions, event by event
//	                   ├─► text: statements of sessions that log no rows; their
//	                   │     rows are fetched where their ids can be told
//	                   └─► decoder: table map and row image to schema.Values
//	                         ├─► readRow, appendInteger, decodeTime … (row.go)
//	                         └─► appendJSON: binary JSON to SELECT's text
//	                               └─► schema.Table.Event ──► Tx.Events
//
// Most of a log can be foreign: such a transaction costs no memory, and no Tx of
// its own. A Stream gathers those without outbox rows and hands them out as
// Tx.Before of what comes next (gathered.go).
//
// Backfill reads the same Tx values out of the table itself, Select those of chosen
// rows; Between finds the part of it for a time. Created gives the ids of the rows
// of a time, and Rows and Has find rows by id (created.go). LocateFile and
// LocateTime translate a place in the log
// and a time to a position, by a walk over the groups of a log file.
//
// A Poller needs no log: it claims pending rows of the table in a transaction, by
// its status column, for one who publishes and then stamps them (poller.go). Any
// number of pollers work on a table:
//
//	START TRANSACTION       at READ COMMITTED: no gap is locked, writers do not wait
//	SELECT … WHERE status = 'pending' ORDER BY created_at, id LIMIT n
//	  FOR UPDATE SKIP LOCKED        by the index (status, created_at)
//	SELECT id, aggregate_id         all that is pending up to the last of them, as of
//	  WHERE status = 'pending' …    now: a row is left for later when one before it of
//	                                its aggregate is not among those that were locked
//	(they are published and confirmed)
//	UPDATE … SET status = 'published' …; COMMIT
//
// Invariant: a row is claimed only while every earlier row of its aggregate that is
// pending and wanted is in the same batch. The second SELECT makes it so: it sees
// each row that was committed before one that was locked, and of a row that another
// poller held at the first SELECT whether it was stamped since, or given back. A
// poller that dies has stamped nothing or all: its transaction is rolled back, by
// the server at once, or 60 s after the host went silent (wait_timeout).
//
// A Pruner walks along the old rows of a Prunable and deletes those that it is
// told to. It reads along an index, each read behind the last one's place, with
// no lock, and tells which transactions the rows can be of, so that the caller
// knows when they are confirmed. It deletes under SKIP LOCKED and READ COMMITTED,
// only rows that are as they were found. A partition goes under a lock of the
// table (partition.go).
//
// What else text may write to the outbox through is looked up as it is by the time
// that the text is read (reach.go), and the log between the two is read for what
// took some of it away (redefined.go): such text stops the stream.
//
// Which columns a row has: where the log names them (binlog_row_metadata=FULL),
// the definition is made of the row's own table map (definition.go). Else it is
// one that is known to be in force at that place: that of the position where the
// stream began, if the caller knows it, up to the next statement that may have
// changed the table (alteration.go); and behind such a statement, or where none
// is known, that of now, if no later one stands in the log up to the moment when
// it was read (lookahead.go). Any other row stops the stream. Tx.Definition tells
// what is known behind each transaction, for the caller to keep. Rows of XA
// transactions that were prepared before the stream began are read by the
// definition in force at its beginning, if no statement stands between. A change that
// is in no statement (sql_log_bin=0) is looked for where the server numbers the
// table anew.
//
// An Archive is log files on disk; its Playback feeds the same assembler. Where
// the log names the table's columns no server is needed; else the definition is a
// server's, whose own log is looked through for later changes. MariaDB's names do not
// tell a UUID from a BINARY(16), nor JSON from text: a value for which that makes
// a difference is refused where no server tells.
//
// The two flavors write nearly the same log. What differs in it is in
// mariadb_event.go: the group, whose GTID stands for BEGIN, and compression; in
// mariadb_value.go: UUIDs; in domains.go: positions; and in series.go: sets of
// single transactions, by which log files go. What differs in the words by which
// a server is asked is a dialect (flavor.go): mysql.go and mariadb.go. A GTIDSet
// holds each of them.
//
//	purged ⊆ position    MySQL: gtid_purged. MariaDB: where the oldest log file
//	                     begins, BINLOG_GTID_POS(file, 4)
//	position ⊆ executed  MySQL: gtid_executed. MariaDB: each domain's transaction
//	                     is in gtid_binlog_state under its own server's id, or is
//	                     the one that gtid_slave_pos names
//	a transaction's      MySQL: in gtid_executed. MariaDB: in a snapshot whose place
//	rows can be seen     in the log is behind it
//
// Failures:
//
//	wrong user or password, no privilege          ErrAuth, ErrGrant
//	certificate not accepted, on either side,
//	TLS missing or wanted                         ErrTLS
//	GTID mode or binlog off, wrong format         ErrSettings
//	log gone before the position                  ErrPurged
//	position ahead of the server                  ErrDiverged
//	no such place or time in the log              ErrPlace
//	rows chosen by what the table does not have   ErrSelection
//	columns of a row not known, table gone        ErrChanged
//	log files encrypted, foreign, not in a row    ErrFiles
//	text whose rows can't be told, lost XA,
//	incident, unknown event                       ErrUnreadable
//	a value that makes no event                   *schema.BadEventError
//	bytes that are not what their type says       ErrDamaged
//	no status column for a poller, no InnoDB      schema.ErrTable
//	a row without a status                        *schema.BadEventError
//	no file for what is too large for memory      ErrSpool
//	no room for it                                the system's error: begin again
//	link broken, server restarted                 anything else: begin again from the position
package binlog
