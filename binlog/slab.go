package binlog

// slab is memory for the payloads of one row event, which go their way together.
type slab struct{ free []byte }

// slabBytes bounds what one payload can keep in memory besides itself.
const slabBytes = 64 << 10

// put copies b, behind which about more bytes are to come.
func (s *slab) put(b []byte, more int) []byte {
	if len(b) == 0 {
		return []byte{}
	}
	if len(b) > cap(s.free)-len(s.free) {
		s.free = make([]byte, 0, max(len(b), min(len(b)+more, slabBytes)))
	}
	at := len(s.free)
	s.free = append(s.free, b...)
	return s.free[at:len(s.free):len(s.free)]
}
