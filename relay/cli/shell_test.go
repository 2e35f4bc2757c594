package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shellRig has the binary as relay in a directory of the PATH, and the three
// completions beside it.
func shellRig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(relayBinary(t), filepath.Join(dir, "relay")); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := run(t, nil, "completion", shell)
		got.want(t, 0)
		if err := os.WriteFile(filepath.Join(dir, "completion."+shell), []byte(got.stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell runs a script with $dir being the rig's, and wants it to print this.
func shell(t *testing.T, name, script, want string) {
	t.Helper()
	dir := shellRig(t)
	script = "export dir='" + dir + "' HOME='" + t.TempDir() + "' PATH='" + dir + "':$PATH\n" + script
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	got, all, err := tool(t, name, path)
	if err != nil || strings.TrimSpace(got) != want {
		t.Errorf("%s: %v; printed %q, want %q; with standard error:\n%s", name, err, got, want, all)
	}
}

// TestCompletionBash drives the function as readline does: the words are split
// at =. Seen to fail without the script's line on =: nothing for --order=.
func TestCompletionBash(t *testing.T) {
	t.Parallel()
	shell(t, "bash", `
. "$dir/completion.bash"
complete -p relay
try() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _relay; echo "${COMPREPLY[*]}"; }
try relay ru
try relay completion ''
try relay run --st
try relay run --start l
try relay run --order = ''
try relay run --order =
try relay run --checkpoint /e
try relay replay --to ''
`, strings.Join([]string{
		"complete -o default -F _relay relay", "run", "bash zsh fish", "--stamp --start", "latest", "strict pipelined", "strict pipelined", "", "- exchange",
	}, "\n"))
}

// TestCompletionZsh types into an interactive zsh, and lets it print what the
// line has become. Seen to fail without compdef: no word changes.
func TestCompletionZsh(t *testing.T) {
	t.Parallel()
	shell(t, "zsh", `
zmodload zsh/zpty
mkfifo $dir/got
zpty z zsh -f -i
zpty -w z "autoload -Uz compinit && compinit -u -D && . $dir/completion.zsh; print ready >$dir/got"
until read -r got <$dir/got; do :; done
line() {
  zpty -w -n z "$1"$'\t\C-aprint -r -- "\C-e" >$dir/got\n'
  until read -r got <$dir/got; do :; done # one that meets the last line's writer gets nothing
  print -r -- "<${got//$dir\//}>"
}
line 'relay ru'
line 'relay run --start la'
line 'relay run --start=la'
line 'relay comp'
touch $dir/afile
line "relay run --checkpoint $dir/afi"
zpty -d z
`, strings.Join([]string{"<relay run>", "<relay run --start latest>", "<relay run --start=latest>", "<relay completion>", "<relay run --checkpoint afile>"}, "\n"))
}

// TestCompletionFish asks fish itself. Seen to fail with -f and no function:
// nothing is printed.
func TestCompletionFish(t *testing.T) {
	t.Parallel()
	shell(t, "fish", `
source "$dir/completion.fish"
complete -C 'relay ru'
complete -C 'relay run --start la'
complete -C 'relay run --start=la'
complete -C 'relay print e'
touch $dir/afile; complete -C "relay run --checkpoint $dir/af" | string replace "$dir/" ''
`, strings.Join([]string{
		"run\tfollow the outbox and publish its events", "latest\t--start", "--start=latest\t--start",
		"env\tprint the settings that the units read", "afile",
	}, "\n"))
}
