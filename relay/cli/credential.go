package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

// passwordFile is the file that the flag names, else the credential of that
// name which systemd hands over: mysql-password for --mysql-password-file. One
// without a character counts as none: that is what the unit has where the
// operator made no file.
func passwordFile(c *cli.Context, flag string) string {
	if path := c.String(flag); path != "" {
		return path
	}
	directory := os.Getenv("CREDENTIALS_DIRECTORY")
	if directory == "" {
		return ""
	}
	path := filepath.Join(directory, strings.TrimSuffix(flag, "-file"))
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.Trim(string(content), "\r\n") == "" {
		return ""
	}
	return path // what is wrong with it is told where it is read
}
