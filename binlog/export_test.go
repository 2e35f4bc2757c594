package binlog

// Identity is what the server is known by; a test may change it.
func (s *Server) Identity() *string { return &s.identity }
