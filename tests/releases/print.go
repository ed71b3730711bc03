//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo))

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// print writes the table in markdown, and complains about every release that was run and differs from the first.
func print(all []*release) error {
	first := all[0]
	title := fmt.Sprintf("release %s", first.own.Version)
	fmt.Printf("| release | from | loader | states | own states restored | rows bit for bit those of %s | restores what %s saved | restored by %s |\n", title, title, title)
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	var wrong []error
	for _, r := range append([]*release{first}, inOrder(all[1:])...) {
		if r.own.Error != "" {
			fmt.Printf("| %s | %s | %s | | | | | |\n", name(r), origin(r.dir), refusal(r.own.Error))
			continue
		}
		rows, states, restored, sameRows, comparable := 0, 0, 0, 0, 0
		for i, c := range r.own.Cases {
			if c.whole() {
				restored++
			} else {
				wrong = append(wrong, fmt.Errorf("%s: %s: %d of %d tokens restored, %v", name(r), c.Name, c.Restored, c.Saved, c.Like))
			}
			if c.Mode != "rows" {
				states++
				continue
			}
			rows++
			if f := first.own.Cases[i]; f.Mode == c.Mode {
				comparable++
				if f.Rows == c.Rows && f.Fingerprint == c.Fingerprint {
					sameRows++
				} else {
					fmt.Fprintf(os.Stderr, "%s: %s: rows %s of %s, %s of %s at the first\n", name(r), c.Name, c.Rows, c.Fingerprint, f.Rows, f.Fingerprint)
				}
			}
		}
		cells := []string{name(r), origin(r.dir), "loads", fmt.Sprintf("%d kept as rows, %d with states; %s", rows, states, r.own.Layout), of(restored, len(r.own.Cases))}
		if r == first {
			cells = append(cells, "", "", "")
		} else {
			cells = append(cells, of(sameRows, comparable), crossed(r.of, r, &wrong), crossed(r.atFirsts, r, &wrong))
		}
		fmt.Printf("| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Println()
	var names []string
	for _, c := range first.own.Cases {
		names = append(names, fmt.Sprintf("%s (%s)", c.Name, c.Mode))
	}
	fmt.Printf("Cases: %s.\n", strings.Join(names, ", "))
	return errors.Join(wrong...)
}

// inOrder sorts releases: those that were run by their versions, then the others by their folders.
func inOrder(all []*release) []*release {
	refused := func(r *release) int { return min(1, len(r.own.Error)) }
	return slices.SortedStableFunc(slices.Values(all), func(a, b *release) int {
		return cmp.Or(refused(a)-refused(b), strings.Compare(name(a), name(b)))
	})
}

func name(r *release) string {
	if r.own.Version != "" {
		return r.own.Version
	}
	return filepath.Base(r.dir)
}

func origin(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "origin"))
	if err != nil {
		return filepath.Base(dir)
	}
	return strings.TrimSpace(string(b))
}

func refusal(err string) string {
	if strings.Contains(err, "unknown layout") || strings.Contains(err, "is missing") {
		return "refuses it: attach with a binding of your own"
	}
	return strings.ReplaceAll(err, "|", "/")
}

func of(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

// crossed says how the states of one release go on in another: rows must, whole states must not be taken.
func crossed(a answer, r *release, wrong *[]error) string {
	if a.Error != "" {
		*wrong = append(*wrong, fmt.Errorf("%s beside the first: %s", name(r), a.Error))
		return a.Error
	}
	taken, same, rows, worst := 0, 0, 0, 0.0
	for _, c := range a.Cases {
		if c.Mode != "rows" {
			if c.Restored > 0 {
				*wrong = append(*wrong, fmt.Errorf("%s: %s: a whole state of another release was restored", name(r), c.Name))
			}
			continue
		}
		rows++
		if c.Restored == c.Saved {
			taken++
			worst = max(worst, c.Like.MeanKL)
		}
		if c.whole() {
			same++
		}
		if c.Restored < c.Saved || c.Like.MeanKL > 0.02 { // farther than other batches are
			*wrong = append(*wrong, fmt.Errorf("%s: %s crossed: %d of %d tokens restored, %v", name(r), c.Name, c.Restored, c.Saved, c.Like))
		}
	}
	text := of(taken, rows)
	if same == taken {
		return text + ", the same logits"
	}
	return fmt.Sprintf("%s, %d with the same logits, mean KL at most %.2g", text, same, worst)
}
