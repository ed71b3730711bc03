package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
)

// leastDigits is how many digits of a fingerprint name a model, if no other model's begins with them.
const leastDigits = 8

// storedModels are the models of a store by name, the newest version of each name first.
func storedModels(s *db.Store) ([]db.ModelStats, error) {
	all, err := db.Collect(s.Models())
	slices.SortStableFunc(all, func(a, b db.ModelStats) int { return natural(a.Descriptor.Name, b.Descriptor.Name) })
	return all, err
}

// modelsNamed are the models that a --model means: all versions of a name, one version by NAME@latest, NAME@superseded or NAME@FINGERPRINT, or one by its
// fingerprint. Of a fingerprint the first digits are enough, if no other begins with them.
func modelsNamed(all []db.ModelStats, text string) []db.ModelStats {
	if out := versionsOf(all, text); len(out) > 0 {
		return out
	}
	if out := withFingerprint(all, text); len(out) > 0 {
		return out
	}
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return nil
	}
	versions, which := versionsOf(all, text[:at]), text[at+1:]
	switch which {
	case "all":
		return versions
	case "latest", "superseded":
		var out []db.ModelStats
		for _, m := range versions {
			if m.Latest == (which == "latest") {
				out = append(out, m)
			}
		}
		return out
	}
	return withFingerprint(versions, which)
}

// versionsOf are the models of a name, the newest first.
func versionsOf(all []db.ModelStats, name string) (out []db.ModelStats) {
	for _, m := range all {
		if m.Descriptor.Name == name {
			out = append(out, m)
		}
	}
	return out
}

// withFingerprint is the one model whose fingerprint begins so.
func withFingerprint(all []db.ModelStats, digits string) (out []db.ModelStats) {
	if len(digits) < leastDigits {
		return nil
	}
	for _, m := range all {
		if strings.HasPrefix(m.Fingerprint.String(), digits) {
			out = append(out, m)
		}
	}
	if len(out) > 1 {
		return nil
	}
	return out
}

// modelList names models in a sentence.
func modelList(all []db.ModelStats) string {
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("%s (%s)", m.Descriptor.Name, m.Fingerprint))
	}
	return strings.Join(names, ", ")
}

// noModel says that a --model means none of the stored ones.
func noModel(all []db.ModelStats, text string) error {
	if len(all) == 0 {
		return fmt.Errorf("no model %q in the store, which has none", text)
	}
	return fmt.Errorf("no model %q in the store, only %s", text, modelList(all))
}
