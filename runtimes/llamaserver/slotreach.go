package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
)

// A server need not reach what this process gives it. In another PID namespace it cannot follow links to memory of this process; as another user
// it can open neither those nor files of this user; with other mounts it sees another folder, or none. Its answer is a status that names no cause. So the first
// time it is tried: with links, and if they fail, with ordinary files, of the server's user if need be.

// saveSlot has the server save a slot into a new file, which is mapped. The caller closes it, or gives it to done.
func (s *served) saveSlot(ctx context.Context, id int) (*slotfile.File, api.Done, error) {
	f, done, err := s.saveOnce(ctx, id)
	if err == nil || s.reached.Load() || !notWritten(err) {
		return f, done, err
	}
	first := err
	who, known := proc.UserOf(s.front.base)
	if !known {
		who = os.Geteuid()
	}
	owner := 0
	if me := os.Geteuid(); who != me {
		if owner = who; me != 0 {
			return nil, done, fmt.Errorf("%w: %s", first, s.whyUnreached(who))
		}
	}
	back, err := s.folder.Plain(owner)
	if err != nil {
		return nil, done, errors.Join(first, err)
	}
	if f, done, err = s.saveOnce(ctx, id); err != nil {
		back()
		if notWritten(err) {
			err = fmt.Errorf("%w: %s", first, s.whyUnreached(who))
		}
		return nil, done, err
	}
	log := s.log.Info
	if s.folder.OnDisk() {
		log = s.log.Warn
	}
	log("the server cannot follow links to memory of this process: slot files are files of their own now", "are", s.folder.String(), "because", s.whyUnreached(who))
	return f, done, nil
}

// errElsewhere says that a server has saved a slot, and that nothing is in the file.
var errElsewhere = errors.New("the server has saved a slot, and the file is empty: its --slot-save-path is another folder, or it has other mounts")

// notWritten reports whether a server could not write a file, or wrote another one.
func notWritten(err error) bool {
	var status *api.StatusError
	return errors.Is(err, errElsewhere) || errors.As(err, &status) && status.Status >= 400 && status.Status != http.StatusServiceUnavailable && !api.Unsupported(err)
}

func (s *served) saveOnce(ctx context.Context, id int) (*slotfile.File, api.Done, error) {
	f, err := s.folder.Create(0)
	if err != nil {
		return nil, api.Done{}, err
	}
	done, err := s.api.Act(ctx, "save", id, f.Name)
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
	s.reached.Store(true)
	return f, done, nil
}

// reachTime bounds the trial of a server whose slot files are known: a slot that is at work is not waited for.
const reachTime = 2 * time.Second

// reaches tries whether the server reaches the folder, with a slot that has nothing in it yet. False: it is to be looked at closely.
func (s *served) reaches(ctx context.Context) bool {
	if err := s.take(ctx); err != nil {
		return true
	}
	defer s.give()
	short, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	f, _, err := s.saveSlot(short, 0)
	if err == nil {
		f.Close()
	}
	return err == nil || !notWritten(err) // what is at work is tried when it is saved
}

// whyUnreached says in words what keeps the server, which runs as a user, from slot files, and what to do about it.
func (s *served) whyUnreached(user int) string {
	path := s.folder.Path
	why := proc.Sandbox(s.front.base, path)
	if me := os.Geteuid(); user >= 0 && user != me && why == "" {
		why = fmt.Sprintf("it runs as user %d and this process as user %d, so neither can open what the other has", user, me)
	}
	if why == "" {
		why = "it may be kept from it by a namespace of its own, or by AppArmor, SELinux or Landlock"
	}
	return fmt.Sprintf("the server does not reach the slot files in %s, or the links there to memory of this process: %s. "+
		"Run both as one user and in one sandbox, or name a folder that both see and can write to with --slot-dir, best on a tmpfs", path, why)
}
