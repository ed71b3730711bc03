package llama

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

func open(path string) (uintptr, error) {
	h, err := windows.LoadLibraryEx(path, 0, windows.LOAD_WITH_ALTERED_SEARCH_PATH)
	return uintptr(h), err
}

func symbol(handle uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), name)
}

// visible is not asked here: on Windows a library names the one that it takes a function from.
func visible(string) bool { return false }

// resident lists the modules of the process, by whomever they were loaded.
func resident() ([]string, error) {
	process := windows.CurrentProcess()
	modules := make([]windows.Handle, 1024)
	for {
		var need uint32
		size := uint32(len(modules)) * uint32(unsafe.Sizeof(modules[0]))
		if err := windows.EnumProcessModules(process, &modules[0], size, &need); err != nil {
			return nil, err
		}
		if n := need / uint32(unsafe.Sizeof(modules[0])); need <= size {
			modules = modules[:n]
			break
		} else {
			modules = make([]windows.Handle, n)
		}
	}
	var files []string
	for _, m := range modules {
		path := make([]uint16, windows.MAX_LONG_PATH)
		if err := windows.GetModuleFileNameEx(process, m, &path[0], uint32(len(path))); err == nil {
			files = append(files, windows.UTF16ToString(path))
		}
	}
	return files, nil
}
