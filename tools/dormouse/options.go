package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// options are the flags of serve and doctor.
type options struct {
	store, budget, durability, codec string
	minFree                          string
	listenOn, attach, slotDir        string
	apiKey                           string
	variant, log                     string
	normalize                        []string
	scopeByKey, zstd, allowRemote    bool
	sharedDir, explain               bool
	saveAfter                        time.Duration
}

func (o *options) flags(f *pflag.FlagSet) {
	storeFlag(f, &o.store)
	f.StringVar(&o.budget, "budget", "8GiB", "most that the store takes on the disk")
	f.StringVar(&o.minFree, "min-free", "auto", "what is left free on its file system: auto (256 MiB, or a sixteenth of a smaller volume), none (or 0), or a size")
	f.StringVar(&o.durability, "durability", "process", "what survives: process (a kill), or power (a power cut, too; slower)")
	f.StringVar(&o.codec, "codec", "raw", "how rows are kept: raw (as the server has them, to the bit), q8 (half the size of f16 rows, nearly the same), or q4r (two fifths)")
	f.BoolVar(&o.zstd, "zstd", false, "compress what gets at least 5 % smaller")
	f.StringVar(&o.listenOn, "listen", "", "address to listen on, or the path of a socket file that ends in .sock (default: --host and --port of the server's arguments)")
	f.StringVar(&o.attach, "attach", "", "URL of a server that is run by somebody else; needs --slot-dir")
	f.StringVar(&o.slotDir, "slot-dir", "", "where slot files go (default: in memory); with --attach: the folder of the server's --slot-save-path")
	f.StringVar(&o.apiKey, "api-key", "", "with --attach: an API key that the server accepts")
	f.StringVar(&o.variant, "variant", "", "with --attach: the server's arguments that change what is computed (RoPE, overrides); servers of other variants share nothing")
	f.BoolVar(&o.scopeByKey, "scope-by-key", false, "requests with different API keys share nothing but system prompts: neither from the store, nor from slots; the server has no cache in memory then")
	f.StringSliceVar(&o.normalize, "normalize", nil, "rules that change requests, so that prompts which say the same begin the same: claude-code, codex, opencode, pi, qwen-code, or a file")
	f.BoolVar(&o.allowRemote, "page-for-all", false, "show the page and the metrics to other machines, too")
	sharedFlag(f, &o.sharedDir)
	f.DurationVar(&o.saveAfter, "save-after", 300*time.Millisecond, "how long a slot is idle before it is saved")
	f.BoolVar(&o.explain, "explain", false, "keep the text around the place where each of the last 20 prompts parted from what is stored, in memory, for dormouse explain")
	f.StringVar(&o.log, "log", "info", "what is logged: debug, info, warn or error")
}

func storeFlag(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "store", "", "folder of the store (default: dormouse/llama-server in the user's folder for caches)")
}

func sharedFlag(f *pflag.FlagSet, on *bool) {
	f.BoolVar(on, "allow-shared-dir", false, "accept a store folder that others can write to")
}

// fromEnvironment takes flags that were not given from variables: --save-after from DORMOUSE_SAVE_AFTER. One that is empty says nothing.
// With names, of these alone.
func fromEnvironment(cmd *cobra.Command, names ...string) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(names) > 0 && !slices.Contains(names, f.Name) {
			return
		}
		name := "DORMOUSE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && v != "" && !f.Changed && err == nil {
			if e := cmd.Flags().Set(f.Name, v); e != nil {
				err = fmt.Errorf("%s: %w", name, e)
			}
		}
	})
	return err
}

// front makes the options of a front.
func (o *options) front(logger *slog.Logger) (f llamaserver.Options, err error) {
	if f.Dir, err = storeDir(o.store); err != nil {
		return f, err
	}
	f.DB = db.Options{Logger: logger, AllowSharedDir: o.sharedDir}
	if f.DB.Budget, err = size("budget", o.budget, leastBudget); err != nil {
		return f, err
	}
	if f.DB.MinFree, err = minFree(o.minFree); err != nil {
		return f, err
	}
	switch o.durability {
	case "process":
		f.DB.Durability = db.Process
	case "power":
		f.DB.Durability = db.Power
	default:
		return f, fmt.Errorf("--durability %q: expected process or power", o.durability)
	}
	name := o.codec
	if name == "q8" {
		name = quant.Q8_0.String()
	}
	codec, err := quant.ParseCodec(name)
	if err != nil {
		return f, fmt.Errorf("--codec %q: expected raw, q8 or q4r: %w", o.codec, err)
	}
	f.DB.Codec = codec
	if o.zstd {
		f.DB.Compression = quant.Zstd
	}
	if err := f.DB.Validate(); err != nil {
		return f, err
	}
	switch {
	case o.saveAfter <= 0:
		return f, fmt.Errorf("--save-after %v: expected more than 0", o.saveAfter)
	}
	if o.slotDir != "" {
		if f.SlotDir, err = path("slot-dir", o.slotDir); err == nil {
			err = isFolder("slot-dir", f.SlotDir)
		}
		if err != nil {
			return f, err
		}
	}
	for _, name := range o.normalize {
		if name, err = path("normalize", name); err != nil {
			return f, err
		}
		f.Normalize = append(f.Normalize, name)
	}
	if err := llamaserver.CheckNormalize(f.Normalize); err != nil {
		return f, fmt.Errorf("--normalize: %w", err)
	}
	f.Memo = memo(f.Dir)
	f.Attach, f.APIKey, f.Variant = o.attach, o.apiKey, o.variant
	f.Explain = o.explain
	f.ScopeByKey, f.SaveAfter, f.Logger = o.scopeByKey, o.saveAfter, logger
	return f, nil
}

// memo is the file that remembers hashes of models: beside the store, or in its folder where nothing can be written beside it, as at the root of a volume.
func memo(store string) string {
	beside := store + ".models"
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	if try, err := os.CreateTemp(nearest(filepath.Dir(store)), ".dormouse-"); err == nil {
		try.Close()
		os.Remove(try.Name())
		return beside
	}
	return filepath.Join(store, "dormouse-models")
}

// nearest is a folder, or the first above it that is there.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// logger writes to stderr.
func (o *options) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.log)); err != nil {
		return nil, fmt.Errorf("--log %q: expected debug, info, warn or error", o.log)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}
