// Package checkpoint keeps the relay's position in one small durable file.
//
// # Invariant
//
// The file holds, at every moment and after every crash, one whole state that
// was once given to Save; and after Save has returned nil it holds that state
// or a later one. A file that is damaged in any way is refused; neither it nor
// an empty file is ever read as "there is no checkpoint yet".
//
// That the position covers only what the broker has confirmed is the caller's
// part: this package stores what it is told and looks into no GTID set.
//
// # Data flow
//
//	Open      follow symbolic links, lock <path>.lock, remove the temporary file
//	          of a killed Save, try the directory, read the file
//	State     what the file holds, from memory; Reload reads it anew
//	Save      write <path>.relay-tmp, fsync, close, rename onto <path>, fsync the
//	          directory
//	Keep      copy <path> to <path>.20260102T150405.000000Z, fsync both
//	Kept      find the newest of those copies that can be read
//	Override  Open for the operator's override: a damaged file does not stop it
//	Read      the state without the lock, for a look while the relay runs
//	Close     give the lock back; the lock file stays
//
// If path is a symbolic link, every name above is formed from the file that it
// leads to, so that the rename replaces the file and not the link, and all
// links to one file share one lock. A link to a file that does not exist yet
// is followed too.
//
// The lock is flock(2) on a file of its own, since a lock on the checkpoint
// itself would go with the old file at the first rename. The kernel drops it
// when the holder dies, however it dies. The lock file holds the holder's
// process number in decimal, for the message to whoever comes second; it is
// empty after Close. Removing the lock file of a running relay does not free
// the lock: the next Save sees it and fails.
//
// Files have mode 0640. Written by root, a file goes to the owner of the file
// that it replaces, or of the directory, so that a `sudo relay resume` does not
// lock the service's user out.
//
// # Format
//
// The file is indented JSON in UTF-8, one field a line, in the order of State's
// fields, and the checksum last:
//
//	{
//	  "version": 1,
//	  "flavor": "mysql",
//	  "gtid_set": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77",
//	  "server_uuid": "3e11fa47-71ca-11e1-9e33-c80aa9429562",
//	  "sequence": 4711,
//	  "table": "shop.outbox",
//	  "saved_at": "2026-01-02T15:04:05.123456789Z",
//	  "committed_at": "2026-01-02T15:04:04.9Z",
//	  "checksum": "sha256:…64 lower-case hexadecimal digits…"
//	}
//
// "last_gtid" stands before "committed_at" once it is known; "columns", "topics",
// "partial", "backfill" and "parked" before the checksum while they apply. A file
// with topics, or with a backfill that has "topics_before" or "stamping", is of
// version 3, another with columns or parked events of version 2, one without of
// version 1. Topics are {"only": […], "except": […]}, either of which may be
// missing; each column is
//
//	{
//	  "name": "payload",
//	  "type": "text",
//	  "charset": "utf8mb4"
//	}
//
// with "octets" behind the type where its length is fixed. "committed_at" is null
// while it is unknown; a file that says so with the year 1 is of an early
// relay, and is read. Times are RFC 3339 in UTC. The file ends with a line feed.
//
// The checksum is the SHA-256 of the whole file as it is with the checksum's
// value empty ("checksum": ""). It covers every byte, so any edit is seen,
// also of white space, line ends or the order of fields. By hand:
//
//	sed 's/^  "checksum": ".*"$/  "checksum": ""/' checkpoint.json | sha256sum
//
// The last two lines are the same in every version to come; that is how a file
// of a newer version is told from a damaged one. Within a version a state has
// exactly one form: unknown, missing, repeated and reordered fields are
// corruption even under a right checksum. A new field needs a new version.
//
// # Failures
//
//	killed in Save before the rename      old state; Open removes the temporary file
//	killed in Save after the rename       new state
//	power lost in Save                    old or new state, whole
//	power lost after Save                 new state, if the disk honours fsync
//	Save: write, fsync, rename fail       error; old file intact, temporary file removed
//	Save: fsync of the directory fails    error; new file in place, a power cut may
//	                                      bring the old one back
//	killed in Keep                        the original is intact; the copy may be cut
//	                                      short and is then refused when it is read
//	empty, zeros, cut short, longer,      ErrCorrupt from Open, Reload and Read
//	edited, not JSON, not a regular file
//	written by a newer relay              ErrVersion from Open, Reload and Read
//	file gone while the relay runs        ErrCorrupt from Reload; Save writes it anew
//	second relay on the file              ErrLocked from Open
//	lock file removed or replaced         ErrLocked from the holder's next Save
//	directory missing, not writable,      ErrUnwritable from Open, and from a later
//	read-only; file not readable          Save if it comes about then
//	disk full, I/O error                  the system's error, from Open or Save
//	file system without flock             the system's error, from Open
//
// On a network file system the lock is as good as the server's; the file
// belongs on a local disk.
package checkpoint
