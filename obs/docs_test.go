package obs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

// docs/metrics.md has a row for each metric, in this order, and no other.
func TestDocs(t *testing.T) {
	const file = "../docs/metrics.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, table, found := strings.Cut(string(b), "| --- | --- | --- | --- |\n")
	if !found {
		t.Fatalf("%s has no table", file)
	}
	var want strings.Builder
	for _, m := range obs.Metrics() {
		labels := "-"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, m.Help)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+"| --- | --- | --- | --- |\n"+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want.String() {
		t.Errorf("%s has\n%s\nexpected (go test ./obs -run TestDocs -update)\n%s", file, table, want.String())
	}
}

// The Go code in the docs is in the example, which compiles.
func TestCodeInDocs(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range []string{"../docs/metrics.md", "../docs/operations.md"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
			if !strings.Contains(code[1], "obs.") && !strings.Contains(code[1], "page.") {
				continue
			}
			for line := range strings.Lines(code[1]) {
				lines++
				if line = strings.TrimSpace(line); !strings.Contains(string(example), line+"\n") {
					t.Errorf("%s: the example lacks %q", file, line)
				}
			}
		}
	}
	if lines < 6 {
		t.Errorf("%d lines of code", lines)
	}
}

// Every query of the dashboard asks for metrics and labels that there are; what should be looked at is on it.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Query any }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for _, m := range obs.Metrics() {
		known[m.Name] = append(m.Labels, "instance")
		if m.Kind == "histogram" {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				known[m.Name+end] = []string{"le", "instance"}
			}
			delete(known, m.Name)
		}
	}
	name := regexp.MustCompile(`dormouse_\w+`)
	label := regexp.MustCompile(`by \(([^)]*)\)|[{,](\w+)=`)
	shown := map[string]bool{}
	queries := 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			queries++
			metrics := name.FindAllString(q.Expr, -1)
			if len(metrics) == 0 {
				t.Errorf("%s: %s asks for nothing of ours", p.Title, q.Expr)
			}
			for _, m := range metrics {
				if known[m] == nil {
					t.Errorf("%s: there is no metric %s", p.Title, m)
				}
				shown[m] = true
				for _, found := range label.FindAllStringSubmatch(q.Expr, -1) {
					for _, l := range strings.Split(found[1]+found[2], ",") {
						if l = strings.TrimSpace(l); !slices.Contains(known[m], l) {
							t.Errorf("%s: %s has no label %q", p.Title, m, l)
						}
					}
				}
			}
		}
	}
	for _, v := range board.Templating.List {
		for _, m := range name.FindAllString(fmt.Sprint(v.Query), -1) {
			if known[m] == nil {
				t.Errorf("a variable asks for %s", m)
			}
		}
	}
	for _, m := range []string{
		"dormouse_front_requests_total", "dormouse_front_tokens_unused_total", "dormouse_front_saved_seconds_total", "dormouse_store_model_bytes",
		"dormouse_store_scope_bytes", "dormouse_store_evicted_blocks_total", "dormouse_store_eviction_age_seconds_bucket", "dormouse_store_budget_bytes",
	} {
		if !shown[m] {
			t.Errorf("%s is on no panel", m)
		}
	}
	if queries < 30 {
		t.Errorf("%d queries", queries)
	}
}
