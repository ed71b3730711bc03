package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// The charts' geometry, in pixels: two columns of panels, with a bar for everything that is done with a prompt.
const (
	chartPanel  = 470
	chartLabel  = 176
	chartValue  = 120
	chartBar    = 14
	chartPitch  = 20
	chartHead   = 30
	chartGap    = 24
	chartMargin = 20
	chartTop    = 62
)

// Colours that read on white and on black; a viewer that knows which it is gets sharper ones.
const chartStyle = `
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 12px; fill: #6b7684 }
.title { font-size: 16px; font-weight: 600 }
.panel { font-size: 13px; font-weight: 600 }
.bar { fill: #8a97a8 }
.bar.ours { fill: #d9772b }
.bar.computed { fill-opacity: 0.45 }
.axis { stroke: #8a97a8; stroke-width: 1 }
.grid { stroke: #8a97a8; stroke-width: 0.5; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: light) { text { fill: #333c47 } .bar { fill: #aab4c0 } .bar.ours { fill: #cc6a1f } }
@media (prefers-color-scheme: dark) { text { fill: #d3d9e0 } .bar { fill: #66717f } .bar.ours { fill: #f0914a } }
`

type chartRow struct {
	label string
	ours  bool
	cost  cost
}

type chartPanelOf struct {
	title string
	rows  []chartRow
}

// drawCosts writes the two charts and the table of a file of costs into a folder.
func drawCosts(path, dir string) error {
	all, err := readCosts(path)
	if err != nil {
		return err
	}
	all.computed()
	var lengths, disks []chartPanelOf
	for _, s := range shapes {
		byLength := chartPanelOf{title: s.title()}
		for _, n := range costTokens {
			p := all.prompt(s.Name, n)
			add := func(label string, ours bool, what string) {
				if c, ok := p.Seconds[what]; ok {
					byLength.rows = append(byLength.rows, chartRow{count(n) + " tokens, " + label, ours, c})
				}
			}
			add("prefill", false, costRecompute)
			add("cold", true, costCold)
			add("warm", true, costWarm)
		}
		byDisk := chartPanelOf{title: s.title()}
		p := all.prompt(s.Name, chartTokens)
		add := func(label string, ours bool, what string) {
			if c, ok := p.Seconds[what]; ok {
				byDisk.rows = append(byDisk.rows, chartRow{label, ours, c})
			}
		}
		add("prefill", false, costRecompute)
		for _, rate := range costRates {
			add(slow("file of f16,", rate), false, slow(costFileCold, rate))
			add(slow("Dormouse,", rate), true, slow(costCold, rate))
		}
		add("Dormouse, in memory", true, costWarm)
		lengths, disks = append(lengths, byLength), append(disks, byDisk)
	}
	const legend = "Seconds, logarithmic: a step of the grid is ten times. Orange: restored by Dormouse. Pale: an estimate."
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "cost-models.svg"), chart("What a prompt costs, by model and length", legend, lengths), 0o644),
		os.WriteFile(filepath.Join(dir, "cost-storage.svg"), chart(fmt.Sprintf("What a prompt of %s tokens costs, by disk; nothing in memory", count(chartTokens)), legend, disks), 0o644),
		os.WriteFile(filepath.Join(dir, "cost.md"), all.markdown(), 0o644),
	)
}

// chartTokens is the length of the prompts in the chart by disk.
const chartTokens = 2048

func (s shape) title() string {
	return fmt.Sprintf("%s: %g KiB of f16 a token", s.Title, float64(s.tokenBytes())/1024)
}

// chart draws panels on one logarithmic axis.
func chart(title, legend string, panels []chartPanelOf) []byte {
	least, most, rows := math.Inf(1), 0.0, 0
	for _, p := range panels {
		rows = max(rows, len(p.rows))
		for _, row := range p.rows {
			least, most = min(least, row.cost.Median), max(most, row.cost.Median)
		}
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(max(most, least*10)))
	height := chartHead + rows*chartPitch
	w, h := 2*chartMargin+2*chartPanel+chartGap, chartTop+(len(panels)+1)/2*(height+chartGap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n<style>%s</style>\n", w, h, w, h, escaped(title), chartStyle)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="26">%s</text>`+"\n"+`<text x="%d" y="46">%s</text>`+"\n", chartMargin, escaped(title), chartMargin, escaped(legend))
	for i, p := range panels {
		x, y := chartMargin+i%2*(chartPanel+chartGap), chartTop+i/2*(height+chartGap)
		fmt.Fprintf(&b, `<text class="panel" x="%d" y="%d">%s</text>`+"\n", x, y+14, escaped(p.title))
		zero, bottom := float64(x+chartLabel), y+chartHead+len(p.rows)*chartPitch-chartPitch+chartBar+4
		step := float64(chartPanel-chartLabel-chartValue) / (to - from)
		for k := 0; float64(k) <= to-from; k++ {
			class := "grid"
			if k == 0 {
				class = "axis"
			}
			fmt.Fprintf(&b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", class, zero+float64(k)*step, zero+float64(k)*step, y+chartHead-4, bottom)
		}
		for k, row := range p.rows {
			top, class := y+chartHead+k*chartPitch, "bar"
			if row.ours {
				class += " ours"
			}
			if row.cost.Computed {
				class += " computed"
			}
			length := max(1, (math.Log10(row.cost.Median)-from)*step)
			fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`+"\n", zero-8, top+11, escaped(row.label))
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", class, zero, top, length, chartBar)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", zero+length+6, top+11, strings.TrimSuffix(row.cost.String(), " (estimate)"))
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func escaped(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text))
	return b.String()
}

// markdown is all of it as a table.
func (c *costs) markdown() []byte {
	var b strings.Builder
	b.WriteString("| model | KV of a token | prompt, tokens | stored | warm | cold | disk of 2 GB/s | 1 GB/s | 0.5 GB/s | the same as a file of f16: warm | cold | 1 GB/s | prefill instead |\n")
	b.WriteString("| --- |" + strings.Repeat(" ---: |", 12) + "\n")
	for _, s := range shapes {
		for _, n := range costTokens {
			p := c.prompt(s.Name, n)
			fmt.Fprintf(&b, "| %s | %g KiB | %s | %s MiB |", s.Title, float64(s.tokenBytes())/1024, count(n), number(float64(p.Stored)/(1<<20)))
			for _, what := range []string{
				costWarm, costCold, slow(costCold, 2000), slow(costCold, 1000), slow(costCold, 500), costFileWarm, costFileCold, slow(costFileCold, 1000), costRecompute,
			} {
				text := "-"
				if x, ok := p.Seconds[what]; ok {
					text = x.String()
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "\n%s\n", c.Machine)
	for _, note := range c.Notes {
		fmt.Fprintf(&b, "\n- %s\n", note)
	}
	return []byte(b.String())
}
