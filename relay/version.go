package relay

import "runtime/debug"

// Version is the module's version, and where it was built from a checkout
// the commit, as the Go toolchain stamped it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, commit, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	if commit == "" {
		return version
	}
	return version + " " + commit + dirty
}
