package binlog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReach: what may write to the outbox by way of something else.
func TestReach(t *testing.T) {
	r := newReach("shop", "outbox", []object{
		{target, "shop", "orders", "BEGIN INSERT INTO outbox VALUES (1); END"},
		{target, "shop", "carts", "UPDATE orders SET a = 1"}, // and so fires the first
		{target, "shop", "stats", "SET @n = (SELECT COUNT(*) FROM outbox)"},
		{target, "shop", "outbox", "INSERT INTO shop.outbox_log VALUES (1)"},
		{target, "other", "orders", "INSERT INTO outbox VALUES (1)"}, // another's
		{target, "other", "notes", "INSERT INTO `shop`.`outbox` VALUES (1)"},
		{0, "shop", "pending", "select `shop`.`outbox`.`id` AS `id` from `shop`.`outbox`"},
		{0, "shop", "busy", "select `shop`.`emit`(1)"},
		{called, "shop", "emit", "PREPARE s FROM 'INSERT INTO outbox VALUES (1)'"},
		{called, "shop", "Twice", "CALL emit(1)"},
		{called, "shop", "count", "RETURN (SELECT COUNT(*) FROM outbox)"},
		{called, "shop", "hidden", ""},
		// As MySQL shows a body made under NO_BACKSLASH_ESCAPES, and literals: without
		// their escapes. Taken apart by any rule, one of them hides the orders.
		{target, "shop", "steps", `BEGIN DECLARE x TEXT DEFAULT 'it's ' \'; INSERT INTO orders VALUES (1); SET x = '\'; END`},
		{target, "shop", "ord`s", "CALL emit(1)"},
		{target, "od.db", "orders", `INSERT INTO "shop"."ord` + "``" + `s" VALUES (1)`},
		{target, "shop", "ordé", "INSERT INTO outbox VALUES (1)"},
		{target, "shop", "订单", "INSERT INTO outbox VALUES (1)"},
		{called, "shop", "fé", "INSERT INTO outbox VALUES (1)"},
	}, nil)
	want := map[string]way{
		"shop.orders": target, "shop.carts": target, "other.notes": target, "shop.pending": target,
		"shop.busy": called, "shop.emit": called, "shop.twice": called,
		"shop.steps": target, "shop.ord`s": target, "od.db.orders": target, "shop.ordé": target, "shop.订单": target, "shop.fé": called,
	}
	got := map[string]way{}
	for p, by := range r.ways {
		got[p.String()] = by
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reach (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"INSERT INTO orders VALUES (1)":                               "shop.orders",
		"INSERT INTO Orders VALUES (1)":                               "shop.orders",
		"UPDATE a, `orders` SET a.x = 1":                              "shop.orders",
		"DELETE FROM other.notes":                                     "other.notes",
		"DELETE FROM notes":                                           "",
		"INSERT INTO other.orders VALUES (1)":                         "",
		"REPLACE INTO percona.checksums SELECT 1 FROM shop.orders":    "",
		"REPLACE INTO percona.checksums SELECT 1, 'x' FROM shop.busy": "shop.busy",
		"INSERT INTO notes VALUES (twice(1))":                         "shop.twice",
		"INSERT INTO notes VALUES ('orders')":                         "",
		"INSERT INTO notes VALUES (1) /* orders */":                   "",
		"INSERT INTO /*! notes */ VALUES ('orders')":                  "od.db.orders",
		"SELECT `shop`.`emit`(1)":                                     "shop.emit",
		"INSERT INTO pending VALUES (1)":                              "shop.pending",
		"INSERT INTO .orders VALUES (1)":                              "shop.orders",
		"INSERT INTO ordé VALUES (1)":                                 "shop.ordé",
		"SELECT fe()":                                                 "shop.fé",
		"SELECT èmit()":                                               "shop.emit",
		"INSERT INTO 订单 VALUES (1)":                                   "shop.订单",
		"INSERT INTO 表单 VALUES (1)":                                   "",
		"CREATE TABLE z SELECT twice(1)":                              "shop.twice",
		"CREATE TABLE z SELECT * FROM orders":                         "",
	} {
		if got := r.through(newText(plainQuery(text)), outboxTable(t)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{ // with ANSI_QUOTES, in od.db
		`INSERT INTO "orders" VALUES (1)`:             "od.db.orders",
		"INSERT INTO `ord``s` VALUES (1)":             "shop.ord`s",
		`INSERT INTO "shop"."ord` + "`s\" VALUES (1)": "shop.ord`s",
		`INSERT INTO "notesé" VALUES ('a')`:           "other.notes",
		`INSERT INTO "others" VALUES ('a')`:           "",
	} {
		q := plainQuery(text)
		q.database, q.modes = "od.db", modeANSIQuotes
		if got := r.through(newText(q), outboxTable(t)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{ // in latin1
		"INSERT INTO ord\xe9 VALUES (1)":           "shop.ordé",
		"INSERT INTO `ord\xc9` VALUES ('\xfc')":    "shop.ordé",
		"INSERT INTO notes VALUES (shop.f\xe9 ())": "shop.fé",
		"INSERT INTO notes VALUES ('ord\xe9')":     "",
		"INSERT INTO b\xe9b\xe9 VALUES ('\xfc')":   "",
	} {
		q := plainQuery(text)
		q.client, q.database = 8, "shop"
		if got := r.through(newText(q), outboxTable(t)); want != "" && got != want || want == "" && got != "" && !strings.HasPrefix(text, "INSERT INTO notes") {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
