package llamaserver

import (
	"slices"
	"strconv"
	"strings"
)

// refusal is something that a server can be asked for, with which nothing is cached: it makes that unsafe, or the user has asked for none.
type refusal struct {
	why string
	// yes asks for it, unless its value asks for nothing; no asks for the opposite, unless its value is "off". Of all that are said, the last
	// counts: a flag behind a variable of the environment, and of two flags the second.
	yes, no []string
	// nothing are values that say no more than leaving the argument out.
	nothing func(value string) bool
}

const (
	reuseRefused = "--cache-reuse shifts rows, which makes them approximations"
	swaRefused   = "--swa-full: the server takes what is restored for all rows of its window layers, of which a slot file has the last ones only"
	draftRefused = "a draft model has a cache of its own, which slot files do not bring back"
)

var refusals = []refusal{
	{why: "the server was told not to reuse prompts", yes: []string{"--no-cache-prompt", "LLAMA_ARG_NO_CACHE_PROMPT"}, no: []string{"--cache-prompt", "LLAMA_ARG_CACHE_PROMPT"}},
	{why: reuseRefused, yes: []string{"--cache-reuse", "LLAMA_ARG_CACHE_REUSE"}, nothing: atMost(0)},
	{why: "self-extend shifts rows", yes: []string{"-gan", "--grp-attn-n", "LLAMA_ARG_GRP_ATTN_N"}, nothing: atMost(1)},
	{why: "control vectors change what rows are", yes: []string{"--control-vector", "--control-vector-scaled"}},
	{why: "an embedding server computes no prompts", yes: []string{"--embedding", "--embeddings", "LLAMA_ARG_EMBEDDINGS"}},
	{why: "a reranking server computes no prompts", yes: []string{"--rerank", "--reranking", "LLAMA_ARG_RERANKING"}},
	{why: draftRefused, yes: []string{"-md", "--model-draft", "--spec-draft-model", "LLAMA_ARG_MODEL_DRAFT", "LLAMA_ARG_SPEC_DRAFT_MODEL"}, nothing: empty},
	{why: draftRefused, yes: []string{"-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf", "LLAMA_ARG_HFD_REPO", "LLAMA_ARG_SPEC_DRAFT_HF_REPO"}, nothing: empty},
	{why: swaRefused, yes: []string{"--swa-full", "LLAMA_ARG_SWA_FULL"}},
	{why: "the front needs to see the slots (--no-slots)", yes: []string{"--no-slots", "LLAMA_ARG_NO_ENDPOINT_SLOTS"}, no: []string{"--slots", "LLAMA_ARG_ENDPOINT_SLOTS"}},
}

func empty(value string) bool { return value == "" }

// atMost takes numbers up to one for nothing.
func atMost(n int) func(string) bool {
	return func(value string) bool {
		got, err := strconv.Atoi(value)
		return err == nil && got <= n
	}
}

// says reports whether an argument is about it, and whether it asks for it.
func (r *refusal) says(f argument) (about, asks bool) {
	switch {
	case slices.Contains(r.no, f.name):
		return true, off(f)
	case strings.HasPrefix(f.name, "--fim-") && r.why == reuseRefused: // they all say --cache-reuse 256
		return true, true
	case !slices.Contains(r.yes, f.name):
		return false, false
	case r.nothing != nil:
		return true, !r.nothing(f.value()) && !off(f)
	}
	return true, !off(f)
}

// refused is why nothing may be cached with these arguments; empty: nothing stands in the way.
func refused(said []argument) string {
	for i := range refusals {
		asked := false
		for _, f := range said {
			if about, asks := refusals[i].says(f); about {
				asked = asks
			}
		}
		if asked {
			return refusals[i].why
		}
	}
	return ""
}

// judged reports whether an argument is one that refusals are about.
func judged(name string) bool {
	return slices.ContainsFunc(refusals, func(r refusal) bool { return slices.Contains(r.yes, name) || slices.Contains(r.no, name) })
}

// changesRows reports whether an argument may change what rows the model computes, as far as is known here.
func changesRows(f argument) bool {
	switch {
	case judged(f.name), isHarmless(f.name):
		return false
	}
	at, said := "", f.value()
	switch name := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(f.name), "_", "-"), "llama-arg-"); strings.TrimPrefix(name, "--") {
	case "rope-freq-base", "rope-freq-scale", "yarn-orig-ctx": // what the model's file says
		at = "0"
	case "yarn-ext-factor":
		at = "-1"
	}
	n, err := strconv.ParseFloat(said, 64)
	return at == "" || err != nil || strconv.FormatFloat(n, 'f', -1, 64) != at
}

// isHarmless reports whether an argument is known to change nothing of what a row is. Of a flag that can be denied, the environment has a variable for
// either; what is said of drafts bears on nothing, since no draft model runs.
func isHarmless(name string) bool {
	rest, no := strings.CutPrefix(name, "LLAMA_ARG_NO_")
	switch {
	case slices.Contains(harmless, name), no && slices.Contains(harmless, "LLAMA_ARG_"+rest):
		return true
	case name == "--spec-default":
		return false
	}
	for _, begin := range []string{"--spec-", "--draft", "LLAMA_ARG_SPEC_", "LLAMA_ARG_DRAFT_"} {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	return strings.HasPrefix(name, "--") && strings.HasSuffix(name, "-draft") || strings.HasPrefix(name, "LLAMA_ARG_") && strings.HasSuffix(name, "_DRAFT")
}

// off reports whether the argument says no. A variable that denies in its name is not asked for its value by the server.
func off(f argument) bool {
	if strings.HasPrefix(f.name, "LLAMA_ARG_NO_") {
		return false
	}
	switch strings.ToLower(f.value()) {
	case "0", "off", "false", "disabled":
		return true
	case "": // a flag that is said says yes; a variable without a value does not
		return strings.HasPrefix(f.name, "LLAMA_ARG_")
	}
	return false
}
