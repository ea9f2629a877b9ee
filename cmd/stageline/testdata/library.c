/* The library of a puppet whose library is replaced: what it says to itself is this code's doing. */
#include <sys/socket.h>
#include <unistd.h>

int talk(int n)
{
	char word[LENGTH] = { 0 };
	int p[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		return -1;
	for (int i = 0; i < n; i++)
		if (write(p[0], word, sizeof(word)) != sizeof(word) || read(p[1], word, sizeof(word)) != sizeof(word))
			return -1;
	close(p[0]);
	close(p[1]);
	return 0;
}
