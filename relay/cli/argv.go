package cli

import (
	"os"
	"strings"
	"unsafe"
)

// secret are the flags whose value can hold a password.
var secret = []string{"mysql-dsn", "amqp-url", "amqp-management-url", "inbox-dsn", "replica-dsn"}

// hideSecrets returns args and, where they are the process's own, overwrites
// the values that can hold a password in the memory that ps reads.
func hideSecrets(args []string) []string {
	kept := make([]string, len(args))
	for i, arg := range args {
		kept[i] = strings.Clone(arg)
	}
	if len(args) == 0 || len(os.Args) == 0 || &args[0] != &os.Args[0] {
		return kept
	}
	for i, arg := range args {
		for _, name := range secret {
			flag := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
			switch {
			case flag == arg:
			case flag == name && i+1 < len(args):
				blank(args[i+1])
			case strings.HasPrefix(flag, name+"="):
				blank(arg[len(arg)-len(flag)+len(name)+1:])
			}
		}
	}
	return kept
}

// blank overwrites an argument in place: the runtime's os.Args point into the
// block that the kernel made at exec.
func blank(arg string) {
	for i := range unsafe.Slice(unsafe.StringData(arg), len(arg)) {
		unsafe.Slice(unsafe.StringData(arg), len(arg))[i] = '*'
	}
}
