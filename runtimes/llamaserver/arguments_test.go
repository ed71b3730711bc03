package llamaserver

import (
	"slices"
	"strings"
	"testing"
)

func parsed(t *testing.T, env string, line string) *Arguments {
	t.Helper()
	a, err := ParseArguments(strings.Fields(line), strings.Fields(env))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return a
}

func TestArgumentsAreReplaced(t *testing.T) {
	a := parsed(t, "PATH=/bin LLAMA_ARG_PORT=9000 LLAMA_ARG_HOST=::1 LLAMA_ARG_CTX_SIZE=512", "llama-server -m m.gguf --port 8081 -n -1 --temp 0 --slot-save-path /s")
	if got := a.Listen(); got != "[::1]:8081" {
		t.Errorf("it listens on %s: a flag overrides the environment", got)
	}
	want := "llama-server -m m.gguf -n -1 --temp 0 --slot-save-path /s --host 127.0.0.1 --port 1234"
	if got := strings.Join(a.command(1234, "/ours"), " "); got != want {
		t.Errorf("the server is started as\n%s, expected\n%s", got, want)
	}
	if want := []string{"PATH=/bin", "LLAMA_ARG_CTX_SIZE=512"}; !slices.Equal(a.env, want) {
		t.Errorf("its environment is %q, expected %q", a.env, want)
	}
	if a.Model != "m.gguf" || a.Slots != "/s" || a.Router || a.Rows != "" || a.Refused != "" {
		t.Errorf("it says %+v", a)
	}
}

func TestArgumentsThatChangeRows(t *testing.T) {
	for _, c := range []struct{ env, line, rows, refused string }{
		{"", "s -m m --rope-freq-base 1e6 --threads 3", "--rope-freq-base 1e6", ""},
		{"LLAMA_ARG_ROPE_FREQ_SCALE=0.5", "s -m m", "LLAMA_ARG_ROPE_FREQ_SCALE 0.5", ""},
		{"", "s -m m --override-kv a=int:1 --a-flag-of-next-year 7", "--a-flag-of-next-year 7 --override-kv a=int:1", ""},
		{"", "s -m m --lora a.gguf --lora-scaled b.gguf:0.5", "", ""}, // named by request
		{"", "s -m m --cache-reuse 256", "", reuseRefused},
		{"", "s -m m --cache-reuse 0", "", ""},
		{"LLAMA_ARG_NO_CACHE_PROMPT=1", "s -m m", "", "the server was told not to reuse prompts"},
		{"", "s -m m -md d.gguf", "", draftRefused},
		{"", "s -m m --swa-full", "", swaRefused},
		{"LLAMA_ARG_SWA_FULL=0", "s -m m", "", ""},
		{"", "s -m m --swa_full", "", swaRefused}, // the server takes _ for -
		{"", "s -m m --rope_freq_base 1e6", "--rope-freq-base 1e6", ""},
		{"", "s --fim-qwen-7b-default", "--fim-qwen-7b-default", reuseRefused},
		{"", "s -m m --embeddings", "", "an embedding server computes no prompts"},
	} {
		a := parsed(t, c.env, c.line)
		if a.Rows != c.rows || a.Refused != c.refused {
			t.Errorf("%s %s: rows %q refused %q, expected %q and %q", c.env, c.line, a.Rows, a.Refused, c.rows, c.refused)
		}
	}
	if a := parsed(t, "", "s -m m --lora a.gguf,c.gguf --lora-scaled b.gguf:0.5"); !slices.Equal(a.Adapters, []string{"a.gguf", "c.gguf", "b.gguf"}) {
		t.Errorf("adapters %q", a.Adapters)
	}
}

func TestArgumentsOfIdleSlots(t *testing.T) {
	for line, keeps := range map[string]bool{
		"s -m m": false, "s -m m --cache-ram 0": true, "s -m m -cram 100": false, "s -m m --no-kv-unified": true, "s -m m --no-cache-idle-slots": true,
	} {
		if a := parsed(t, "", line); a.KeepsIdle != keeps {
			t.Errorf("%s: idle slots keep their contents: %v, expected %v", line, a.KeepsIdle, keeps)
		}
	}
	for line, keeps := range map[string]bool{
		"s -m m --no-cache-idle-slots --cache-idle-slots": false, "s -m m --cache-ram 8": false, "s -m m --kv-unified --no-kv-unified": true,
	} { // the last word counts, also against the environment
		if a := parsed(t, "LLAMA_ARG_CACHE_RAM=0", line+" --cache-ram 8"); a.KeepsIdle != keeps {
			t.Errorf("%s: idle slots keep their contents: %v, expected %v", line, a.KeepsIdle, keeps)
		}
	}
	if a := parsed(t, "", "s -m m --lora_scaled b.gguf:0.5 --slot_save_path /s --port 1 --port 2"); len(a.Adapters) != 1 || a.Slots != "/s" || a.Port != 2 {
		t.Errorf("%+v", a)
	}
	for _, line := range []string{"s -mu http://a/b.gguf", "s -dr a/b", "s --gpt-oss-20b-default"} {
		if a := parsed(t, "", line); a.Router {
			t.Errorf("%s is taken for a router", line)
		}
	}
	if a := parsed(t, "", "s --models-dir d"); !a.Router {
		t.Error("a server of many models is not known as one")
	}
	if a := parsed(t, "", "s -hf a/b"); a.Router {
		t.Error("a server of one model from a hub is taken for a router")
	}
}

func TestArgumentsRefused(t *testing.T) {
	for _, line := range []string{"", "s --port x", "s --port 70000", "s --host 127.0.0.1,::1", "s --api-key-file /does/not/exist"} {
		if _, err := ParseArguments(strings.Fields(line), nil); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestArgumentsOfShifts(t *testing.T) {
	for _, c := range []struct {
		env, line string
		shifts    bool
	}{
		{"", "s -m m", false}, {"", "s -m m --context-shift", true}, {"", "s -m m --context_shift", true}, {"", "s -m m --context-shift --no-context-shift", false},
		{"LLAMA_ARG_CONTEXT_SHIFT=1", "s -m m", true}, {"LLAMA_ARG_CONTEXT_SHIFT=0", "s -m m", false},
	} {
		if a := parsed(t, c.env, c.line); a.Shifts != c.shifts {
			t.Errorf("%s %s: rows are shifted: %v, expected %v", c.env, c.line, a.Shifts, c.shifts)
		}
	}
}

// A default that is said aloud is none the less one; of all that is said of one thing, the last counts.
func TestArgumentsSaidAloud(t *testing.T) {
	none := "the server was told not to reuse prompts"
	for _, c := range []struct{ env, line, rows, refused string }{
		{"", "s -m m --cache-reuse 0 --no-context-shift -np -1 -n -1 --keep -1 --cache-ram -1 --sleep-idle-seconds -1 --spec-type none", "", ""},
		{"", "s -m m --spec-draft-n-max 16 --draft-min 0 --spec-draft-p-min 0.75 -ctkd f16 --threads-draft -1", "", ""},
		{"LLAMA_ARG_SPEC_DRAFT_N_MAX=16 LLAMA_ARG_DRAFT_MIN=0 LLAMA_ARG_N_GPU_LAYERS_DRAFT=0", "s -m m", "", ""},
		{"", "s -m m --rope-freq-base 0 --rope-freq-scale 0.0 --yarn-orig-ctx 0 --yarn-ext-factor -1.00", "", ""},
		{"LLAMA_ARG_ROPE_FREQ_BASE=0 LLAMA_ARG_YARN_EXT_FACTOR=-1", "s -m m", "", ""},
		{"", "s -m m --rope-freq-base 1 --yarn-ext-factor 0", "--rope-freq-base 1 --yarn-ext-factor 0", ""},
		{"LLAMA_ARG_CACHE_REUSE=256", "s -m m --cache-reuse 0", "", ""},
		{"LLAMA_ARG_CACHE_REUSE=0", "s -m m --cache-reuse 1", "", reuseRefused},
		{"", "s -m m --cache-reuse 256 --cache-reuse 0", "", ""},
		{"", "s -m m -gan 1", "", ""},
		{"", "s -m m -gan 4", "", "self-extend shifts rows"},
		{"", "s -m m --no-cache-prompt --cache-prompt", "", ""},
		{"", "s -m m --cache-prompt --no-cache-prompt", "", none},
		{"LLAMA_ARG_CACHE_PROMPT=1", "s -m m", "", ""},
		{"LLAMA_ARG_CACHE_PROMPT=0", "s -m m", "", none},
		{"LLAMA_ARG_NO_CACHE_PROMPT=0", "s -m m", "", none}, // the server does not look at its value
		{"LLAMA_ARG_CACHE_PROMPT=0", "s -m m --cache-prompt", "", ""},
		{"LLAMA_ARG_ENDPOINT_SLOTS=0", "s -m m", "", "the front needs to see the slots (--no-slots)"},
		{"", "s -m m --no-slots --slots", "", ""},
		{"LLAMA_ARG_SPEC_DRAFT_MODEL=", "s -m m", "", ""},
		{"LLAMA_ARG_SWA_FULL=", "s -m m", "", ""},
		{"LLAMA_ARG_EMBEDDINGS=0 LLAMA_ARG_RERANKING=off", "s -m m", "", ""},
		{"LLAMA_ARG_NO_KV_UNIFIED=1 LLAMA_ARG_NO_MMAP=1 LLAMA_ARG_NO_WARMUP=1", "s -m m", "LLAMA_ARG_NO_WARMUP 1", ""},
	} {
		a := parsed(t, c.env, c.line)
		if a.Rows != c.rows || a.Refused != c.refused {
			t.Errorf("%s %s: rows %q refused %q, expected %q and %q", c.env, c.line, a.Rows, a.Refused, c.rows, c.refused)
		}
	}
}
