package binlog

import "net"

// watched is a connection that tells when the server is waited for.
type watched struct {
	net.Conn
	waiting func(bool)
}

func (w watched) Read(b []byte) (int, error) {
	w.waiting(true)
	defer w.waiting(false)
	return w.Conn.Read(b)
}

// watch wraps a connection where somebody wants to know.
func (c Config) watch(conn net.Conn, err error) (net.Conn, error) {
	if err != nil || c.Waiting == nil {
		return conn, err
	}
	return watched{conn, c.Waiting}, nil
}
