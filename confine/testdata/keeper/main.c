/* The keeper as a program of its own: its constructor does not return. */
int main(void)
{
	return 1;
}
