/* Loads the library twice in one process: the second refuses every call. Arguments: two files of the library. */
#include <dlfcn.h>

#include <stdio.h>
#include <string.h>

#include "dormouse.h"

typedef dormouse_status (*hash_fn)(const void *, size_t, char *);
typedef dormouse_status (*last_fn)(dormouse_error *);

int main(int argc, char **argv) {
	char text[33];
	if (argc != 3) return 2;
	void *one = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *two = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	if (!one || !two) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	hash_fn h1 = (hash_fn)dlsym(one, "dormouse_hash"), h2 = (hash_fn)dlsym(two, "dormouse_hash");
	last_fn l2 = (last_fn)dlsym(two, "dormouse_last_error");
	dormouse_error e = DORMOUSE_INIT(dormouse_error);
	if (h1("a", 1, text) != DORMOUSE_OK || h2("a", 1, text) != DORMOUSE_ERR_SECOND_COPY || l2(&e) != DORMOUSE_OK || !strstr(e.message, "copy")) {
		fprintf(stderr, "the second copy answers %d: %s\n", h2("a", 1, text), e.message);
		return 1;
	}
	puts("copies: ok");
	return 0;
}
