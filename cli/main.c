#include <aril/aril.h>

#include <stdio.h>

int main(void)
{
    printf("aril %s\n", aril_version());
    return 0;
}
