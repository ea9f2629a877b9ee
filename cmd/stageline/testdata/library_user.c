/* A puppet that talks through its library: reads "talk N" and answers with one line. */
#include <stdio.h>

int talk(int n);

int main(void)
{
	char line[64];
	int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		puts(sscanf(line, "talk %d", &n) == 1 && talk(n) == 0 ? "talked" : "error: talk");
	return 0;
}
