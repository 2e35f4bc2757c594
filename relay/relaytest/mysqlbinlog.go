package relaytest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
)

// CopyLog is the command that copies a MySQL server's log files, from the one
// named first to the last, byte for byte into dir, an absolute path: mysqlbinlog
// as a replica, without TLS. The server is that of a DSN. The command is to be
// started; it may leave other files in dir.
func CopyLog(ctx context.Context, dsn, first, dir string) (*exec.Cmd, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("relaytest: the server of the log is not given as a DSN: %w", err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("relaytest: the server of the log has no address: %w", err)
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "testdata", "servers.sh"), "mysqlbinlog", dir,
		"--read-from-remote-server", "--raw", "--to-last-log", "--result-file=./",
		"--host="+host, "--port="+port, "--user="+cfg.User, "--ssl-mode=DISABLED", "--get-server-public-key", first)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+cfg.Passwd)
	cmd.SysProcAttr = apart()
	return cmd, nil
}
