package relay

import (
	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// columnsOf are a table's columns as a checkpoint has them.
func columnsOf(columns []schema.Column) (list []checkpoint.Column) {
	for _, c := range columns {
		list = append(list, checkpoint.Column{Name: c.Name, Type: c.Type, Octets: c.Length, Charset: c.Charset})
	}
	return list
}

// definition is the table as the checkpoint's columns have it; nil where it is
// not known, or is none of an outbox by the settings of now.
func definition(state checkpoint.State, cfg binlog.Config, now *schema.Table) *schema.Table {
	var columns []schema.Column
	for _, c := range state.Columns {
		column := schema.NewColumn(c.Name, schema.Column{Type: c.Type}.DataType(), c.Type, c.Octets, c.Charset)
		for _, present := range now.Columns { // only the server tells of MariaDB's JSON
			if present.Name == column.Name && column.Same(present) {
				column.Checked = present.Checked
			}
		}
		columns = append(columns, column)
	}
	table, err := schema.NewTable(now.Database, now.Name, columns, cfg.Options)
	if err != nil {
		return nil
	}
	return table
}
