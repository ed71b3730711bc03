package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
)

// A server may not reach what this process gives it. In another PID namespace it cannot follow links to memory of this process. As another user it can open
// neither those nor files of this user. With other mounts it sees another folder, or none. Its answer is a status that names no cause. So the first save is
// a trial: with links, and if they fail, with ordinary files, which belong to the server's user if need be.

// reach has the server write slot files.
type reach struct {
	api     *api.Client
	folder  *slotfile.Folder
	base    *url.URL
	log     *slog.Logger
	reached atomic.Bool // the server has written a slot file: it reaches the folder
}

// save has the server save a slot into a new file, which is mapped. The caller closes it, or gives it to the folder's Done.
func (r *reach) save(ctx context.Context, id int) (*slotfile.File, api.Done, error) {
	f, done, err := r.saveOnce(ctx, id)
	if err == nil || r.reached.Load() || !notWritten(err) {
		return f, done, err
	}
	first := err
	who, known := proc.UserOf(r.base)
	if !known {
		who = os.Geteuid()
	}
	owner := 0
	if me := os.Geteuid(); who != me {
		if owner = who; me != 0 {
			return nil, done, fmt.Errorf("%w: %s", first, r.whyUnreached(who))
		}
	}
	back, err := r.folder.Plain(owner)
	if err != nil {
		return nil, done, errors.Join(first, err)
	}
	if f, done, err = r.saveOnce(ctx, id); err != nil {
		back()
		if notWritten(err) {
			err = fmt.Errorf("%w: %s", first, r.whyUnreached(who))
		}
		return nil, done, err
	}
	log := r.log.Info
	if r.folder.OnDisk() {
		log = r.log.Warn
	}
	log("the server cannot follow links to memory of this process: slot files are files of their own now", "are", r.folder.String(), "because", r.whyUnreached(who))
	return f, done, nil
}

// errElsewhere says that a server has saved a slot, and that nothing is in the file.
var errElsewhere = errors.New("the server has saved a slot, and the file is empty: its --slot-save-path is another folder, or it has other mounts")

// notWritten reports whether a server could not write a file, or wrote another one.
func notWritten(err error) bool {
	var status *api.StatusError
	return errors.Is(err, errElsewhere) || errors.As(err, &status) && status.Status >= 400 && status.Status != http.StatusServiceUnavailable && !api.Unsupported(err)
}

func (r *reach) saveOnce(ctx context.Context, id int) (*slotfile.File, api.Done, error) {
	f, err := r.folder.Create(0)
	if err != nil {
		return nil, api.Done{}, err
	}
	done, err := r.api.Act(ctx, "save", id, f.Name)
	if err == nil {
		err = f.Remap()
	}
	if err == nil && f.Size == 0 {
		err = fmt.Errorf("%s: %w", f.Path, errElsewhere)
	}
	if err != nil {
		f.Close()
		return nil, done, err
	}
	r.reached.Store(true)
	return f, done, nil
}

// reachTime bounds the trial of a server whose slot files are known: a slot that is at work is not waited for.
const reachTime = 2 * time.Second

// works tries whether the server reaches the folder, with a slot that has nothing in it yet. False: it is to be looked at closely. The caller has the turn.
func (r *reach) works(ctx context.Context) bool {
	short, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	f, _, err := r.save(short, 0)
	if err == nil {
		f.Close()
	}
	return err == nil || !notWritten(err) // what is at work is tried when it is saved
}

// whyUnreached says in words what keeps the server, which runs as a user, from slot files, and what to do about it.
func (r *reach) whyUnreached(user int) string {
	path := r.folder.Path
	why := proc.Sandbox(r.base, path)
	if me := os.Geteuid(); user >= 0 && user != me && why == "" {
		why = fmt.Sprintf("it runs as user %d and this process as user %d, so neither can open what the other has", user, me)
	}
	if why == "" {
		why = "it may be kept from it by a namespace of its own, or by AppArmor, SELinux or Landlock"
	}
	return fmt.Sprintf("the server does not reach the slot files in %s, or the links there to memory of this process: %s. "+
		"Run both as one user and in one sandbox, or name a folder that both see and can write to with --slot-dir, best on a tmpfs", path, why)
}
