package version

import "strings"

// Version is the release, without the v of its tag. It ends in -dev until it is released.
const Version = "0.1.0-dev"

// Query is what stands behind the @ in 'go get' and 'go install': the tag, or the main branch as long as there is none.
func Query() string {
	if strings.HasSuffix(Version, "-dev") {
		return "main"
	}
	return "v" + Version
}
