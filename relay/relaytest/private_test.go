package relaytest

import "testing"

func TestPrivateMySQL(t *testing.T) {
	var mode, format string
	dsn := PrivateMySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-image=MINIMAL")
	err := DB(t, dsn).QueryRow("SELECT @@gtid_mode, @@binlog_row_image").Scan(&mode, &format)
	if err != nil {
		t.Fatal(err)
	}
	if mode != "OFF" || format != "MINIMAL" {
		t.Errorf("gtid_mode %s, binlog_row_image %s", mode, format)
	}
}
