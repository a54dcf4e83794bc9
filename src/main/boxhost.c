#include "boxhost/program.h"

int main(int argc, char **argv)
{
        return boxhost_main(argc, argv);
}
