package relay

import (
	"cmp"
	"runtime/debug"
)

// Version is the module's version, and where it was built from a checkout
// the commit, as the Go toolchain stamped it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, commit, dirty := cmp.Or(info.Main.Version, "(devel)"), stamp("vcs.revision"), ""
	if version == "(devel)" {
		version = "devel"
	}
	if stamp("vcs.modified") == "true" {
		dirty = "+dirty"
	}
	if len(commit) < 12 {
		return version
	}
	return version + " " + commit[:12] + dirty
}

// VersionDate is the time of that commit in RFC 3339, empty where it is not
// known.
func VersionDate() string { return stamp("vcs.time") }

func stamp(key string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
