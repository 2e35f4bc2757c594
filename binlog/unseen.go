package binlog

// unseen follows a reader of the log through a set that it is to see all of. A
// transaction costs it the same whatever the number of intervals in the sets.
type unseen struct {
	seen *GTIDSet // all that was seen
	all  *GTIDSet
	left int64 // transactions of MySQL in all that are not in seen
}

// newUnseen takes seen over.
func newUnseen(seen, all *GTIDSet) *unseen {
	return &unseen{seen, all, all.Minus(seen).count()}
}

func (u *unseen) cover(tx *Tx) {
	for _, r := range tx.Before {
		for gtid := r.Last; gtid.Number >= r.First; gtid.Number-- {
			u.add(gtid)
		}
	}
	for _, gtid := range tx.covers() {
		if !gtid.IsZero() {
			u.add(gtid)
		}
	}
}

func (u *unseen) add(gtid GTID) {
	if !gtid.sequential() && u.all.Has(gtid) && !u.seen.Has(gtid) {
		u.left--
	}
	u.seen.Add(gtid)
}

// any tells whether there is something left to see.
func (u *unseen) any() bool { return u.left > 0 || !u.seen.domains.contains(u.all.domains) }
