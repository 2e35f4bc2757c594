package relay

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
)

// secret is a password that stands in a file. It is read for each session, so
// that one which was written before the server's was changed is there in time.
// The zero secret stands in none.
type secret struct {
	path     string
	read     string // what the file had for this session
	used     string // in this session
	worked   string // the last that let a session in
	refusals int    // sessions that were not let in since
}

// ReadSecret reads a password out of a file; line ends behind it do not belong
// to it.
func ReadSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return password, nil
}

// next puts the password for the next session in its place. When the file's
// was refused it is the one that worked before: the server's may not have been
// changed yet.
func (s *secret) next(password *string) (err error) {
	if s.path == "" {
		return nil
	}
	if s.read, err = ReadSecret(s.path); err != nil {
		return fmt.Errorf("relay: password file: %w", err)
	}
	if s.used = s.read; s.refusals%2 == 1 {
		s.used = s.worked
	}
	*password = s.used
	return nil
}

// accepted notes that the session was let in.
func (s *secret) accepted() { s.worked, s.refusals = s.used, 0 }

// refused notes that it was not, and tells whether another attempt may be: the
// file was changed meanwhile, or its password and the one that worked before
// were not both refused, and the file's once more.
func (s *secret) refused() (again bool) {
	if s.changed() {
		s.refusals = 0
		return true
	}
	s.refusals++
	return s.worked != "" && s.worked != s.read && s.refusals < 3
}

// changed tells whether the file has another password than it had for this
// session.
func (s *secret) changed() bool {
	if s.path == "" {
		return false
	}
	now, err := ReadSecret(s.path)
	return err == nil && now != s.read
}

// anotherPassword tells whether an error is a refusal that a password file may
// mend.
func (s *supervisor) anotherPassword(err error) bool {
	return errors.Is(err, binlog.ErrAuth) && s.sourceSecret.refused() ||
		errors.Is(err, exchange.ErrAuth) && s.brokerSecret.refused()
}
