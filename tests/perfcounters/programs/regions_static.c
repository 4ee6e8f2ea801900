/* A statically linked program with regions. */
void from_c(void);

int main(void) {
  from_c();
  return 0;
}
