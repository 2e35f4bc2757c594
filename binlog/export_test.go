package binlog

// Identity is what the server is known by; a test may change it.
func (s *Server) Identity() *string { return &s.identity }

// Kept reads what variables say of the log's retention.
var Kept = kept
