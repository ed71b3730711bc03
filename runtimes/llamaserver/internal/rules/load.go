package rules

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

//go:embed sets/*.json
var sets embed.FS

// Sets are the names of those rules that come along: each for a client.
func Sets() (names []string) {
	files, _ := fs.ReadDir(sets, "sets")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// Load reads a set that comes along, or a file.
func Load(nameOrFile string) (Rules, error) {
	file, err := sets.ReadFile(path.Join("sets", nameOrFile+".json"))
	if err != nil {
		file, err = os.ReadFile(nameOrFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q is no file, and no set of rules: these are %s", nameOrFile, strings.Join(Sets(), ", "))
	}
	if err != nil {
		return nil, err
	}
	rs, err := Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrFile, err)
	}
	for i := range rs {
		rs[i].Set = nameOrFile
	}
	return rs, nil
}
