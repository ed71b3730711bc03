package version

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// Every place that names the version names the same one.
func TestOneVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-dev)?$`).MatchString(Version) {
		t.Fatalf("version %q", Version)
	}
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^## (.*)$`).FindStringSubmatch(string(b)); m == nil || m[1] != Version {
		t.Errorf("CHANGELOG.md: newest heading %q, expected %q", m, "## "+Version)
	}

	line := regexp.MustCompile(`go (get|install) (github\.com/dormousekv/dormouse[^\s@` + "`" + `]*)(@([^\s` + "`" + `]+))?`)
	files, gets, installs := 0, 0, 0
	err = filepath.WalkDir(root, func(path string, x fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if x.IsDir() && path != root && (strings.HasPrefix(x.Name(), ".") || x.Name() == "testdata" || x.Name() == "node_modules") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		files++
		b, err := os.ReadFile(path)
		for _, m := range line.FindAllStringSubmatch(string(b), -1) {
			if m[1] == "get" {
				gets++
			} else {
				installs++
			}
			if m[4] != Query() {
				t.Errorf("%s: %q, expected @%s", path, m[0], Query())
			}
			folder := strings.TrimPrefix(m[2], "github.com/dormousekv/dormouse")
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(folder))); err != nil {
				t.Errorf("%s: %q: there is no such package", path, m[0])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 || gets == 0 || installs == 0 {
		t.Errorf("%d files, %d lines of go get, %d of go install: expected some of each", files, gets, installs)
	}
}

// Maven's files say it in Maven's words: 0.1.0-SNAPSHOT while it is 0.1.0-dev.
func TestJavaVersion(t *testing.T) {
	want := strings.Replace(Version, "-dev", "-SNAPSHOT", 1)
	poms, err := filepath.Glob(filepath.Join(root, "java/*/pom.xml"))
	if err != nil || len(poms) < 3 {
		t.Fatalf("%q, %v: expected a pom.xml for each module", poms, err)
	}
	for _, p := range append(poms, filepath.Join(root, "java/pom.xml")) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`<artifactId>dormouse-parent</artifactId>\s*<version>(.*)</version>`).FindSubmatch(b); m == nil || string(m[1]) != want {
			t.Errorf("%s: version %q, expected %q", p, m, want)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/java.md"))
	if err != nil {
		t.Fatal(err)
	}
	jars := regexp.MustCompile(`dormouse-(\d[^\s/]*)\.jar`).FindAllSubmatch(page, -1)
	for _, m := range jars {
		if string(m[1]) != want {
			t.Errorf("docs/java.md: %q, expected %q", m[0], want)
		}
	}
	if len(jars) == 0 {
		t.Error("docs/java.md names no jar")
	}
}
