package page

import (
	"fmt"
	"time"
)

// treeView is a Tree as assets/tree.js draws it.
type treeView struct {
	At      int64       `json:"at"`
	Bytes   int64       `json:"bytes"`
	Blocks  int64       `json:"blocks"`
	Records int64       `json:"records"`
	Damaged int64       `json:"damaged"`
	TooMany bool        `json:"tooMany"`
	Scopes  int         `json:"scopes"`
	Shared  int64       `json:"shared"`
	Used    int64       `json:"used"`
	Models  []modelView `json:"models"`
}

type modelView struct {
	ID      string      `json:"id"`
	Name    string      `json:"name"`
	Latest  bool        `json:"latest"`
	Blocks  int64       `json:"blocks"`
	Records int64       `json:"records"`
	Bytes   int64       `json:"bytes"`
	Tokens  int64       `json:"tokens"`
	Hits    int64       `json:"hits"`
	Used    int64       `json:"used"`
	Kids    []*nodeView `json:"kids,omitempty"`
}

type nodeView struct {
	ID     string      `json:"id"`
	First  int         `json:"first"`
	Tokens int         `json:"tokens"`
	Blocks int         `json:"blocks"`
	Own    int64       `json:"own"`
	Bytes  int64       `json:"bytes"`
	Hits   int64       `json:"hits"`
	Used   int64       `json:"used"`
	Scope  string      `json:"scope,omitempty"`
	Who    string      `json:"who,omitempty"` // programs that have asked for it
	More   int         `json:"more,omitempty"`
	Kids   []*nodeView `json:"kids,omitempty"`
}

func viewOf(t Tree, askers func(string) string) treeView {
	v := treeView{
		At: millis(t.At), Bytes: t.Bytes, Blocks: t.Blocks, Records: t.Records, Damaged: t.Damaged, TooMany: t.TooMany, Scopes: t.Scopes,
		Shared: t.Shared, Used: millis(t.LastUsed), Models: []modelView{},
	}
	var nodes func(from []*Node) []*nodeView
	nodes = func(from []*Node) (out []*nodeView) {
		for _, n := range from {
			x := &nodeView{
				ID: n.ID, First: n.First, Tokens: n.Tokens, Blocks: n.Blocks, Own: n.Own, Bytes: n.Bytes, Hits: n.Hits, Used: millis(n.Used), Scope: n.Scope, More: n.More,
				Kids: nodes(n.Kids),
			}
			if askers != nil && n.More == 0 {
				x.Who = askers(n.ID)
			}
			out = append(out, x)
		}
		return out
	}
	for i, m := range t.Models {
		if i == listedModels && len(t.Models) > listedModels+1 {
			v.Models = append(v.Models, others(t.Models[i:]))
			break
		}
		v.Models = append(v.Models, modelView{
			m.Fingerprint.String()[:12], m.Name, m.Latest, m.Blocks, m.Records, m.Bytes, m.Tokens, m.Hits, millis(m.Used), nodes(m.Kids),
		})
	}
	return v
}

// listedModels are listed one by one, the largest; all others are one line.
const listedModels = 48

func others(models []ModelTree) modelView {
	v := modelView{ID: "others", Name: fmt.Sprintf("… %d more models", len(models)), Latest: true}
	used := time.Time{}
	for _, m := range models {
		v.Blocks += m.Blocks
		v.Records += m.Records
		v.Bytes += m.Bytes
		v.Tokens += m.Tokens
		v.Hits += m.Hits
		used = later(used, m.Used)
	}
	v.Used = millis(used)
	return v
}
