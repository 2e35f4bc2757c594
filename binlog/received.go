package binlog

import (
	"context"
	"database/sql"
)

// received is the set of transactions that a replica has got from its source,
// applied or not; empty for a server that is none. It needs REPLICATION
// CLIENT.
func (s *Server) received(ctx context.Context) (*GTIDSet, error) {
	set, err := ParseGTIDSet("")
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, s.explain(err)
	}
	for rows.Next() { // one for each source
		cells := make([]sql.RawBytes, len(columns))
		if err := rows.Scan(pointers(cells)...); err != nil {
			return nil, s.explain(err)
		}
		for i, name := range columns {
			if name != "Retrieved_Gtid_Set" {
				continue
			}
			one, err := ParseGTIDSet(string(cells[i]))
			if err != nil {
				return nil, err
			}
			if set, err = ParseGTIDSet(set.with(one)); err != nil {
				return nil, err
			}
		}
	}
	return set, rows.Err()
}
