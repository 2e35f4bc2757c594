package binlog

import (
	"errors"
	"testing"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		text string
		kind statement
		name string
	}{
		{"BEGIN", begin, "BEGIN"},
		{"begin", begin, "BEGIN"},
		{"COMMIT", commit, "COMMIT"},
		{"COMMIT;", commit, "COMMIT"},
		{"commit /* implicit, from mysqldump */", commit, "COMMIT"},
		{"ROLLBACK", rollback, "ROLLBACK"},
		{"rollback work", rollback, "ROLLBACK"},
		{"ROLLBACK TO `a b`", rollbackTo, "a b"},
		{"ROLLBACK TO SAVEPOINT `S``1`", rollbackTo, "s`1"},
		{"ROLLBACK TO x;", rollbackTo, "x"},
		{"SAVEPOINT `S``1`", savepoint, "s`1"},
		{"SAVEPOINT x", savepoint, "x"},
		{"XA START X'61',X'',1", xaStart, "X'61',X'',1"},
		{"XA BEGIN X'61'", xaStart, "X'61'"},
		{"XA END X'61',X'',1", ignored, "XA"},
		{"XA COMMIT X'61',X'',1", xaCommit, "X'61',X'',1"},
		{"XA ROLLBACK X'61',X'',1", xaRollback, "X'61',X'',1"},
		{"INSERT INTO t VALUES (1)", rows, "INSERT"},
		{"insert\tinto t", rows, "INSERT"},
		{"REPLACE INTO t", rows, "REPLACE"},
		{"UPDATE t SET a = 1", rows, "UPDATE"},
		{"DELETE FROM t", rows, "DELETE"},
		{"SELECT `shop`.`f`(1)", rows, "SELECT"},
		{"WITH x AS (SELECT 1) DELETE FROM t", rows, "WITH"},
		{"LOAD DATA INFILE 'x' INTO TABLE t", rows, "LOAD"},
		{"/* a */ /*b*/\n-- c\n# d\n INSERT INTO t", rows, "INSERT"},
		{"/* never closed", other, ""},
		{"-- only a comment", other, ""},
		{"", other, ""},
		{"CREATE TABLE t (id INT)", other, "CREATE"},
		{"TRUNCATE TABLE t", other, "TRUNCATE"},
		{"INSERTED", other, "INSERTED"},
		{"insert/**/into t", rows, "INSERT"},
		{"INSERT`t` VALUES (1)", rows, "INSERT"},
		{"SELECT(1)", rows, "SELECT"},
		{"/*!40000 INSERT INTO t VALUES (1) */", rows, "INSERT"},
		{"/*M!100000 REPLACE INTO t VALUES (1) */", rows, "REPLACE"},
		{"/* a *//*!99999 not to all */ INSERT INTO t", rows, "INSERT"},
		{"/*!50003 CREATE*/ /*!50017 DEFINER=x*/ /*!50003 TRIGGER t */", other, ""},
		{"--\n--\tx\nINSERT INTO t", rows, "INSERT"},
		{"--", other, ""},
		{"/*! INSERT INTO t", rows, "INSERT"},
		{"SET STATEMENT a=(SUBSTRING('x' FROM 1 FOR 1)), b='for' FOR INSERT INTO t", rows, "INSERT"},
		{"SET STATEMENT a=1 FOR ANALYZE FORMAT=JSON DELETE FROM t", rows, "DELETE"},
		{"SET STATEMENT a='\\' FOR INSERT INTO t VALUES ('", rows, "SET STATEMENT"},
		{"SET STATEMENT a=1 FOR ALTER TABLE t", other, "ALTER"},
		{"SET PASSWORD = 'x'", other, "SET"},
		{"ANALYZE REPLACE INTO t", rows, "REPLACE"},
		{"ANALYZE TABLE t", other, "ANALYZE"},
	}
	for _, tt := range tests {
		if kind, name := classify(tt.text); kind != tt.kind || name != tt.name {
			t.Errorf("%q: got %d %q, want %d %q", tt.text, kind, name, tt.kind, tt.name)
		}
	}
}

func TestMentions(t *testing.T) {
	tests := []struct {
		table, text string
		want        bool
	}{
		{"outbox", "ALTER TABLE outbox ADD x INT", true},
		{"outbox", "ALTER TABLE `outbox` ADD x INT", true},
		{"outbox", "ALTER TABLE `shop`.`OUTBOX`", true},
		{"outbox", "drop table shop.outbox", true},
		{"outbox", "INSERT INTO outbox(id) VALUES (1)", true},
		{"outbox", "outbox", true},
		{"outbox", "INSERT INTO outbox_archive SELECT 1", false},
		{"outbox", "INSERT INTO my_outbox SELECT 1", false},
		{"outbox", "INSERT INTO outbox2 SELECT 1", false},
		{"outbox", "INSERT INTO $outbox SELECT 1", false},
		{"outbox", "RENAME TABLE outbox_new TO outbox", true},
		{"out.box", "DROP TABLE outxbox", false},
		{"out.box", "DROP TABLE `out.box`", true},
		{"out(box", "DROP TABLE `out(box`", true},
	}
	for _, tt := range tests {
		if got := mentions(tt.table).MatchString(tt.text); got != tt.want {
			t.Errorf("%s in %q: got %t, want %t", tt.table, tt.text, got, tt.want)
		}
	}
}

func TestParseQueryCutShort(t *testing.T) {
	log := insideLog().query("BEGIN")
	body := log.last()[headerSize:]
	if q, err := parseQuery(body); q.text != "BEGIN" || q.database != "shop" || err != nil {
		t.Errorf("got %+v, %v, want BEGIN in shop", q, err)
	}
	for n := range len(body) - len("BEGIN") {
		if q, err := parseQuery(body[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: got %+v, error %v, want %v", n, q, err, ErrDamaged)
		}
	}
}
